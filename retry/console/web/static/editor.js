// Draws what stands in the editor of a value behind it: JSON in colours, and where it ends to be valid. The page works without it.
(() => {
  "use strict";
  const area = document.querySelector("textarea[data-editor]");
  if (!area) return;
  const drawn = document.createElement("pre");
  drawn.setAttribute("aria-hidden", "true");
  area.before(drawn);
  area.parentElement.classList.add("drawn");
  const isJson = area.dataset.editor.startsWith("JSON");
  const TOKEN = /("(?:[^"\\\n]|\\.)*")(?=\s*(:)?)|-?\d[\d.eE+-]*|\b(?:true|false|null)\b/g;

  function piece(text, kind) {
    if (!kind) return document.createTextNode(text);
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = text;
    return span;
  }

  function coloured(text) {
    const parts = [];
    let at = 0;
    for (const found of isJson ? text.matchAll(TOKEN) : []) {
      parts.push(piece(text.slice(at, found.index)), piece(found[0], found[2] ? "name" : found[1] ? "said" : "plain"));
      at = found.index + found[0].length;
    }
    return [...parts, piece(text.slice(at))];
  }

  // A position counts characters, and a text of this language counts pairs of surrogates twice.
  const offsetOf = (text, position) => [...text].slice(0, position).join("").length;

  function draw(position) {
    const text = area.value;
    if (position === undefined) {
      drawn.replaceChildren(...coloured(text), piece("\n"));
      return;
    }
    const at = offsetOf(text, position), end = Math.max(at + 1, text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at));
    const wrong = text.slice(at, end);
    drawn.replaceChildren(...coloured(text.slice(0, at)), piece(wrong.trim() ? wrong : ` ${wrong}`, "wrong"), ...coloured(text.slice(end)), piece("\n"));
  }

  function drawAsChecked() {
    const said = document.querySelector("#differs[data-position], #difference [data-position]");
    draw(said ? Number(said.dataset.position) : undefined);
    area.setAttribute("aria-invalid", String(Boolean(said)));
  }

  area.addEventListener("input", () => draw());
  document.addEventListener("htmx:after:swap", drawAsChecked);
  drawAsChecked();
})();
