// A subset of Markdown, for answers of models: headings, lists, tables, quotes, code, bold and italics. No links, no HTML:
// an address is shown as text, since a model may have it from a tool. Written by hand, as libraries make markup.
import { Code, html, Text } from "./ui.js";

const LONGEST = 100_000;
// Bounded, so that a line of brackets costs no more than its length.
const INLINE = /(`[^`\n]{1,2000}`|\*\*[^*\n]{1,2000}\*\*|__[^_\n]{1,2000}__|(?<![\w*])\*[^*\s][^*\n]{0,500}\*|!?\[[^\]\n]{1,400}\]\([^()\s]{1,400}\))/;
const FENCE = /^ {0,3}(```+|~~~+)/;
const HEADING = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ITEM = /^( *)(?:[-*+]|(\d{1,9})[.)]) +(.*)$/;
const DASHES = /^ *\|?(?: *:?-+:? *\|)+ *(?::?-+:? *)?$/;
const DEEPEST = 4;

function Inline({ text }) {
  return text.slice(0, LONGEST).split(INLINE).map((part, n) => {
    if (n % 2 === 0) return part && html`<${Text} key=${n} value=${part} longest=${LONGEST}/>`;
    if (part.startsWith("`")) return html`<code key=${n}><${Text} value=${part.slice(1, -1)}/></code>`;
    if (part.startsWith("**") || part.startsWith("__")) return html`<strong key=${n}><${Text} value=${part.slice(2, -2)}/></strong>`;
    if (part.startsWith("*")) return html`<em key=${n}><${Text} value=${part.slice(1, -1)}/></em>`;
    const middle = part.lastIndexOf("](");
    return html`<span key=${n}><${Text} value=${part.slice(part.indexOf("[") + 1, middle)}/> <small>(<${Text} value=${part.slice(middle + 2, -1)} longest=${300}/>)</small></span>`;
  });
}

/** How each column of a table is aligned, by the colons of the line below its head. */
const alignedBy = (line) => cells(line).map((each) => (/^-+:$/.test(each) ? "right" : /^:-+:$/.test(each) ? "middle" : ""));

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((each) => each.trim());

/** The text as blocks: `{kind, ...}`; what is no block of this subset is a paragraph. */
export function blocksOf(text) {
  const lines = text.split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const fence = FENCE.exec(line)?.[1];
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    const last = blocks.at(-1);
    if (fence) {
      let end = at + 1;
      while (end < lines.length && !lines[end].trimStart().startsWith(fence)) end += 1;
      blocks.push({ kind: "code", text: lines.slice(at + 1, end).join("\n") });
      at = end;
    } else if (heading) blocks.push({ kind: "heading", level: heading[1].length, text: heading[2] });
    else if (RULE.test(line)) blocks.push({ kind: "rule" });
    else if (item) {
      const found = { deep: Math.min(DEEPEST, item[1].length >> 1), number: item[2], text: item[3] };
      if (last?.kind === "list") last.items.push(found);
      else blocks.push({ kind: "list", items: [found] });
    } else if (line.includes("|") && DASHES.test(lines[at + 1] ?? "")) {
      const rows = [];
      let end = at + 2;
      for (; end < lines.length && lines[end].includes("|"); end += 1) rows.push(cells(lines[end]));
      blocks.push({ kind: "table", head: cells(line), rows, sides: alignedBy(lines[at + 1]) });
      at = end - 1;
    } else if (/^ {0,3}>/.test(line)) {
      const inside = line.replace(/^ {0,3}> ?/, "");
      if (last?.kind === "quote") last.text += `\n${inside}`;
      else blocks.push({ kind: "quote", text: inside });
    } else if (!line.trim()) blocks.push({ kind: "end" });
    else if (last?.kind === "list" && line.startsWith("  ")) last.items.at(-1).text += `\n${line.trim()}`;
    else if (last?.kind === "text") last.text += `\n${line}`;
    else blocks.push({ kind: "text", text: line });
  }
  return joined(blocks);
}

/** Without what ends a block; a list goes on after an empty line. */
function joined(blocks) {
  const found = [];
  blocks.forEach((block, n) => {
    const goesOn = block.kind === "list" && blocks[n - 1]?.kind === "end" && found.at(-1)?.kind === "list";
    if (goesOn) found.at(-1).items.push(...block.items);
    else if (block.kind !== "end") found.push(block);
  });
  return found;
}

function Block({ block }) {
  if (block.kind === "code") return html`<${Code} value=${block.text} label="Code" longest=${LONGEST}/>`;
  if (block.kind === "heading") return html`<p class=${`heading level-${block.level}`} role="heading" aria-level=${Math.min(6, block.level + 2)}><${Inline} text=${block.text}/></p>`;
  if (block.kind === "rule") return html`<hr/>`;
  if (block.kind === "quote") return html`<blockquote><${Inline} text=${block.text}/></blockquote>`;
  if (block.kind === "list") {
    return html`<ul class="list">${block.items.map((item, n) => html`<li key=${n} class=${`deep-${item.deep}`}><span class="dot" aria-hidden="true">${item.number ? `${item.number}.` : "•"}</span><span><${Inline} text=${item.text}/></span></li>`)}</ul>`;
  }
  if (block.kind === "table") {
    return html`<div class="scroll table" tabindex="0" role="region" aria-label="Table"><table><thead><tr>${block.head.map((cell, n) => html`<th key=${n} scope="col" class=${block.sides[n] ?? ""}><${Inline} text=${cell}/></th>`)}</tr></thead>
      <tbody>${block.rows.map((row, n) => html`<tr key=${n}>${row.map((cell, m) => html`<td key=${m} class=${block.sides[m] ?? ""}><${Inline} text=${cell}/></td>`)}</tr>`)}</tbody></table></div>`;
  }
  return html`<p><${Inline} text=${block.text}/></p>`;
}

/** An answer of a model. */
export function Markdown({ text }) {
  return blocksOf(text.slice(0, LONGEST)).map((block, n) => html`<${Block} key=${n} block=${block}/>`);
}
