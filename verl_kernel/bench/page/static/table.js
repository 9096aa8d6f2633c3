// SPDX-License-Identifier: Apache-2.0
// The table of tasks: sorted by the buttons of its head, filtered by the fields above it, walked with the arrow keys.

const table = document.getElementById("table");
const body = table.tBodies[0];
const rows = [...body.rows];
const heads = [...table.tHead.rows[0].cells];
const fields = ["find", "status", "level", "family"].map((id) => document.getElementById(id)).filter(Boolean);

function keys(column) {
  const texts = rows.map((row) => row.cells[column].dataset.sort);
  const numeric = texts.every((text) => text === "" || !Number.isNaN(Number(text)));
  return { numeric, of: new Map(rows.map((row, index) => [row, numeric && texts[index] !== "" ? Number(texts[index]) : texts[index]])) };
}

function sortBy(column) {
  const { numeric, of } = keys(column);
  const before = heads[column].getAttribute("aria-sort");
  const first = numeric ? "descending" : "ascending";
  const second = numeric ? "ascending" : "descending";
  const order = before === first ? second : first;
  const sign = order === "ascending" ? 1 : -1;
  const sorted = [...rows].sort((a, b) => {
    const [x, y] = [of.get(a), of.get(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (numeric ? x - y : x.localeCompare(y, "en", { numeric: true }));
  });
  heads.forEach((head, index) => head.setAttribute("aria-sort", index === column ? order : "none"));
  body.append(...sorted);
}

function fits(row, chosen) {
  const text = `${row.cells[0].textContent} ${row.dataset.family}`.toLowerCase();
  return (
    (chosen.find || "").toLowerCase().split(/\s+/).every((word) => text.includes(word)) &&
    (!chosen.status || row.dataset.has.split(" ").includes(chosen.status)) &&
    (!chosen.level || row.dataset.level === chosen.level) &&
    (!chosen.family || row.dataset.family === chosen.family)
  );
}

function filter() {
  const chosen = Object.fromEntries(fields.map((field) => [field.id, field.value.trim()]));
  for (const row of rows) row.hidden = !fits(row, chosen);
  const shown = rows.filter((row) => !row.hidden).length;
  document.getElementById("count").textContent =
    shown === rows.length ? `${rows.length} tasks` : `${shown} of ${rows.length} tasks`;
  document.getElementById("nothing").hidden = shown > 0;
}

heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => sortBy(column)));
fields.forEach((field) => field.addEventListener("input", filter));
body.addEventListener("click", (event) => {
  const isReading = event.target.closest("a") || String(getSelection());
  if (!isReading) show(event.target.closest("tr"));
});
body.addEventListener("keydown", (event) => {
  const direction = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = direction && neighbour(event.target.closest("tr"), direction);
  if (row) {
    event.preventDefault();
    row.querySelector("a").focus();
  }
});
filter();
