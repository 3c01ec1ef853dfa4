// The buttons of a block of code appear after the page. The button of a console block copies only its commands, without
// prompts and without what they print. Buttons are no landmark of their own: a page would have one for each block.
function commandsOf(code) {
  const commands = [];
  let open = false;
  for (const line of code.textContent.split("\n")) {
    if (line.startsWith("$ ")) commands.push(line.slice(2));
    else if (open) commands.push(line);
    open = (line.startsWith("$ ") || open) && line.endsWith("\\");
  }
  return commands.join("\n") + "\n";
}

function prepareButtons() {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    buttons.setAttribute("role", "none");
    const copy = buttons.querySelector("[data-clipboard-target]");
    const block = buttons.closest(".language-console");
    // The theme copies this text, and says so.
    if (copy && block) copy.setAttribute("data-clipboard-text", commandsOf(block.querySelector("code")));
  }
}

// A table that is wider than the screen is moved with the arrow keys.
function prepareTables() {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
    else wide.removeAttribute("tabindex");
  }
}

function prepare() {
  prepareButtons();
  prepareTables();
}

addEventListener("resize", prepareTables);
new MutationObserver(prepare).observe(document.body, {childList: true, subtree: true});
prepare();
document.querySelector(".md-search").setAttribute("aria-label", "Search");
