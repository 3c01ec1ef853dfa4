// The pages of the console, in the order of the navigation. Each is a file of its own.
import { Calls } from "./pages/calls.js";
import { Overview } from "./pages/overview.js";
import { Tools } from "./pages/tools.js";

/** The pages that this visitor can use. */
export function PAGES(visitor) {
  return [
    { id: "overview", title: "Overview", view: Overview },
    { id: "tools", title: "Tools", view: Tools },
    { id: "calls", title: "Calls", view: Calls },
  ].filter((page) => !page.scope || visitor.can(page.scope));
}
