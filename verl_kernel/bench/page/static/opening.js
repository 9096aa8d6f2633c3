// SPDX-License-Identifier: Apache-2.0
// Opens the task that the address names (#task=3), and unpacks its answers only then.

const dialog = document.getElementById("dialog");
let wanted = null;

async function unpacked(index) {
  const letters = atob(document.getElementById(`pack-${index}`).textContent);
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function namedRow() {
  const match = /^#task=(\d+)$/.exec(location.hash);
  return match && document.getElementById(`task-${match[1]}`);
}

function neighbour(row, direction) {
  let found = row[direction];
  while (found && found.hidden) found = found[direction];
  return found;
}

function show(row) {
  location.hash = `task=${row.id.slice("task-".length)}`;
}

async function openNamed() {
  wanted = namedRow();
  if (!wanted) {
    if (dialog.open) dialog.close();
    return;
  }
  const row = wanted;
  const task = await unpacked(row.id.slice("task-".length)).catch(() => null);
  if (row !== wanted) return;
  if (task) fillDialog(row, task);
  else dialog.replaceChildren(element("p", {}, "This browser cannot unpack the answers: take one of 2023 or later."));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function fillDialog(row, task) {
  const [before, after] = [neighbour(row, "previousElementSibling"), neighbour(row, "nextElementSibling")];
  const previous = button("←", "Previous task", () => show(before));
  const next = button("→", "Next task", () => show(after));
  previous.disabled = !before;
  next.disabled = !after;
  const groups = [task.family, task.level === null ? null : `level ${task.level}`].filter((text) => text !== null);
  const first = task.chosen ? task.chosen[0] : 0;
  dialog.replaceChildren(
    element("header", {},
      element("h2", { id: "dialog-title", tabindex: "-1", autofocus: true }, task.task),
      element("span", { class: "quiet" }, groups.join(", ")),
      element("span", { class: "buttons" }, previous, next, button("Close", "Close", () => dialog.close()))),
    referenceBlock(task),
    ...(task.samples.length ? [] : [element("p", {}, "No answer.")]),
    ...task.samples.map((sample) => sampleSection(sample, task.best, sample.sample === first || task.samples.length < 3)));
}

dialog.addEventListener("close", () => {
  const row = wanted;
  wanted = null;
  dialog.replaceChildren();
  if (namedRow()) history.replaceState(null, "", location.href.split("#")[0]);
  if (row) row.querySelector("a").focus();
});
window.addEventListener("hashchange", openNamed);
openNamed();
