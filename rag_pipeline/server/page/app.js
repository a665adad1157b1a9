// The page: asks the API, shows what it says. Text of documents enters the page as text nodes only.
"use strict";

const at = (id) => document.getElementById(id);
const FIELDS = ["mode", "page", "section", "since", "until", "k"];
const PAUSE_MS = 180;
let asked = null; // the request under way, which the next one ends
let timer = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function note(text, isError = false) {
  at("note").textContent = text;
  at("note").classList.toggle("error", isError);
}

async function ask(path, parameters, signal) {
  const answer = await fetch(path + "?" + new URLSearchParams(parameters), { signal });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  const detail = Array.isArray(body.detail) ? body.detail.map((fault) => fault.loc.at(-1) + ": " + fault.msg).join("; ") : body.detail;
  throw new Error(body.error || detail || answer.statusText);
}

function parameters() {
  const all = [["q", at("q").value]];
  for (const name of FIELDS) if (at(name).value) all.push([name, at(name).value]);
  for (const pattern of at("path").value.split(/\s+/).filter(Boolean)) all.push(["path", pattern]);
  if (at("group").checked) all.push(["group", "true"]);
  return all;
}

async function search() {
  asked?.abort();
  if (!at("q").value.trim()) {
    at("hits").replaceChildren();
    note("");
    return;
  }
  const mine = (asked = new AbortController());
  try {
    const answer = await ask("/api/search", parameters(), mine.signal);
    const words = at("q").value.toLowerCase().match(/[\p{L}\p{N}]{4,}|[\p{Script=Han}]+/gu) || [];
    at("hits").replaceChildren(...answer.hits.map((hit) => hitItem(hit, words)));
    note(`${answer.hits.length} hits in ${answer.took_ms} ms, version ${answer.version}`);
    history.replaceState(null, "", "#" + new URLSearchParams(parameters()));
  } catch (error) {
    if (error.name !== "AbortError") note(error.message, true);
  }
}

function place(hit) {
  return [hit.page ? `page ${hit.page}` : "", hit.section.join(" › ")].filter(Boolean).join(", ");
}

function hitItem(hit, words) {
  const button = element("button");
  button.type = "button";
  button.dataset.chunk = hit.chunk_id;
  button.append(element("span", "path", hit.path));
  button.append(element("span", "where", `${place(hit)} [${hit.start_char}:${hit.end_char}]`));
  const snippet = element("span", "snippet");
  snippet.append(...marked(hit.text.replace(/\s+/g, " ").slice(0, 600), words));
  button.append(snippet, element("span", "scores", scores(hit)));
  if (hit.stale) button.append(element("span", "stale", "the file has changed since it was indexed"));
  button.addEventListener("click", () => show(hit, button));
  const item = element("li");
  item.append(button);
  return item;
}

function scores(hit) {
  const parts = ["vector", "text"].filter((mode) => mode in hit.scores);
  return parts.map((mode) => `${mode} ${hit.scores[mode].toFixed(3)} (#${hit.scores[mode + "_rank"]})`).join(" · ");
}

// The text in pieces, those that begin a word of the question within <mark>.
function marked(text, words) {
  if (!words.length) return [document.createTextNode(text)];
  const escaped = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp(`((?<![\\p{L}\\p{N}])(?:${escaped.join("|")}))`, "iu")).map((piece, number) =>
    number % 2 ? element("mark", "", piece) : document.createTextNode(piece));
}

async function show(hit, button) {
  for (const other of at("hits").querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
  button.setAttribute("aria-current", "true");
  const article = at("place");
  article.replaceChildren(element("h2", "", hit.path), element("span", "where", place(hit)), element("span", "where", hit.location));
  article.scrollTop = 0;
  try {
    const chunk = await ask("/api/chunk", { id: hit.chunk_id, context: 3 });
    if (chunk.page && !chunk.stale && hit.path.toLowerCase().endsWith(".pdf")) {
      const image = element("img");
      image.alt = `Page ${chunk.page} of ${chunk.path}, the passage marked`;
      image.src = "/api/page.png?" + new URLSearchParams({ id: hit.chunk_id });
      image.addEventListener("error", () => image.replaceWith(element("p", "stale", "The page cannot be drawn; its text follows.")));
      article.append(image);
    }
    const passage = element("pre");
    passage.append(element("mark", "", chunk.text));
    article.append(element("pre", "context", chunk.before), passage, element("pre", "context", chunk.after));
    if (!article.querySelector("img")) passage.scrollIntoView({ block: "center" });
  } catch (error) {
    article.append(element("p", "stale", error.message));
  }
}

function table(headings, rows) {
  const made = element("table");
  const head = element("tr");
  head.append(...headings.map((text) => element("th", "", text)));
  made.append(head);
  for (const row of rows) {
    const line = element("tr");
    line.append(...row.map((text) => element("td", "", String(text))));
    made.append(line);
  }
  return made;
}

async function toggleStatus() {
  const section = at("status");
  section.hidden = !section.hidden;
  at("status-button").setAttribute("aria-expanded", String(!section.hidden));
  if (section.hidden) return;
  try {
    const status = await ask("/api/status", {});
    const run = status.last_run;
    section.replaceChildren(
      element("p", "", `${status.chunks} chunks, version ${status.version}, model ${status.model}` +
        (run.run_id ? `; last run ${run.started_at}, exit code ${run.exit_code}` : "")),
      table(["state", "files"], Object.entries(status.files)),
      element("h2", "", `Not fully indexed: ${status.rejects.length}`),
      table(["state", "file", "reason"], status.rejects.map((reject) => [reject.state, reject.path, reject.reason])));
  } catch (error) {
    section.replaceChildren(element("p", "stale", error.message));
  }
}

function restore() {
  const known = new URLSearchParams(location.hash.slice(1));
  for (const name of ["q", ...FIELDS]) if (known.has(name)) at(name).value = known.get(name);
  at("path").value = known.getAll("path").join(" ");
  at("group").checked = known.has("group");
  if ([...known.keys()].some((name) => !["q", "mode", "k"].includes(name))) at("filters").open = true;
}

at("form").addEventListener("submit", (event) => { event.preventDefault(); search(); });
at("form").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, PAUSE_MS); });
at("status-button").addEventListener("click", toggleStatus);
restore();
search();
