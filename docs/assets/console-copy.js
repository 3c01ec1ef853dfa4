// Copy only the commands of a console block: without prompts, and without what they print.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target], .md-clipboard, .md-code__button");
  const block = button && button.closest(".language-console");
  if (!block) return;
  const commands = [];
  let open = false;
  for (const line of block.querySelector("code").textContent.split("\n")) {
    if (line.startsWith("$ ")) commands.push(line.slice(2));
    else if (open) commands.push(line);
    open = (line.startsWith("$ ") || open) && line.endsWith("\\");
  }
  event.stopImmediatePropagation();
  event.preventDefault();
  navigator.clipboard.writeText(commands.join("\n") + "\n");
}, true);
