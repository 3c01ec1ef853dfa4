// The pages of the console, in the order of the navigation. Each is a file of its own.
import { Approvals, WaitingCount } from "./pages/approvals.js";
import { Calls } from "./pages/calls.js";
import { Chat } from "./pages/chat.js";
import { Configuration } from "./pages/configuration.js";
import { Overview } from "./pages/overview.js";
import { PluginPage } from "./pages/plugin_page.js";
import { Servers } from "./pages/servers.js";
import { Sessions } from "./pages/sessions.js";
import { Tools } from "./pages/tools.js";
import { Waterfall } from "./pages/waterfall.js";

/** The pages that this visitor can use. */
export function PAGES(visitor) {
  return [
    { id: "overview", title: "Overview", view: Overview },
    { id: "tools", title: "Tools", view: Tools },
    { id: "chat", title: "Chat", view: Chat, scope: "tools:call" },
    { id: "calls", title: "Calls", view: Calls },
    { id: "waterfall", title: "Waterfall", view: Waterfall },
    { id: "approvals", title: "Approvals", view: Approvals, count: WaitingCount, scope: "approvals:write" },
    { id: "sessions", title: "Sessions", view: Sessions },
    { id: "servers", title: "Servers", view: Servers },
    { id: "configuration", title: "Configuration", view: Configuration, scope: "admin" },
    ...visitor.pages.map((page) => ({ id: `page-${page.id}`, title: page.title, view: PluginPage, plugin: page, scope: page.scope })),
  ].filter((page) => !page.scope || visitor.can(page.scope));
}
