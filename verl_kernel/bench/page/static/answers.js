// SPDX-License-Identifier: Apache-2.0
// A task's samples: the turns of each side by side.

function referenceBlock(task) {
  if (task.reference === null) return "";
  const code = element("div", { class: "code", tabindex: "0", role: "group", "aria-label": "Reference program" });
  task.reference.forEach((text, index) =>
    code.append(element("div", { class: "line", "data-number": index + 1 }, ...coloured(text), "\n")));
  if (task.reference_cut) code.append(element("div", { class: "remark note" }, `${task.reference_cut} more characters are left out`));
  return element("details", { class: "reference" }, element("summary", {}, "Reference program"), code);
}

function sampleSection(sample, bestAnswer, open) {
  const best = bestAnswer && bestAnswer[0] === sample.sample ? bestAnswer[1] : null;
  const trail = sample.turns.map((turn) =>
    element("span", { class: `step ${turn.group}`, title: `turn ${turn.turn}: ${turn.status}` }, turn.speedup || turn.status));
  const made = element("details", { class: "sample" },
    element("summary", {}, element("b", {}, `Sample ${sample.sample}`), ...trail));
  const fill = () => {
    if (made.querySelector(".turns")) return;
    made.append(element("div", { class: "turns", tabindex: "0", role: "group", "aria-label": `Turns of sample ${sample.sample}` },
      ...sample.turns.map((turn) => turnCard(turn, turn.turn === best))));
  };
  made.addEventListener("toggle", fill);
  if (open) {
    made.open = true;
    fill();
  }
  return made;
}

function turnCard(turn, isBest) {
  return element("article", { class: "turn" },
    element("h3", {}, `Turn ${turn.turn} `,
      element("span", { class: `verdict ${turn.group}`, title: turn.meaning }, turn.status),
      turn.speedup ? element("span", { class: "speedup" }, turn.speedup) : null,
      isBest ? element("span", { class: "best" }, "best answer") : null),
    element("p", { class: "reason" }, turn.reason || turn.meaning),
    timesBlock(turn.times),
    profileBlock(turn.profile),
    codeBlock(turn),
    factsBlock(turn.facts),
    completionBlock(turn));
}

function timesBlock(times) {
  const end = Math.max(...times.map((time) => time.p80), Number.MIN_VALUE);
  return element("div", { class: "times" }, ...times.map((time) => {
    const spread = element("span", { class: "spread" });
    spread.style.left = share(time.p20 / end);
    spread.style.width = share((time.p80 - time.p20) / end);
    const median = element("span", { class: "median" });
    median.style.left = share(time.median / end);
    const bar = element("span", { class: "until" });
    bar.style.width = share(time.median / end);
    return element("div", { class: `time ${time.name}` },
      element("span", {}, time.name),
      element("span", { class: "track", "aria-hidden": "true" }, bar, spread, median),
      element("b", {}, time.text),
      element("small", { title: "20th to 80th percentile" }, time.range));
  }));
}

function profileBlock(profile) {
  if (!profile.length) return element("div", { class: "profile" });
  const bar = element("div", { class: "bar", "aria-hidden": "true" });
  const list = element("ul", {});
  profile.forEach((part, number) => {
    const kind = part.own ? `own own-${number % 3}` : `other other-${number % 3}`;
    const piece = element("span", { class: kind, title: `${part.name}: ${part.text}` });
    piece.style.width = share(part.share);
    bar.append(piece);
    list.append(element("li", {}, element("span", { class: `swatch ${kind}` }), element("code", {}, part.name),
      element("span", {}, part.text), element("small", {}, `${Math.round(100 * part.share)}%`)));
  });
  return element("div", { class: "profile" }, element("h4", {}, "One forward"), bar, list);
}

function factsBlock(facts) {
  return element("dl", { class: "facts" },
    ...facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
}

function codeBlock(turn) {
  if (turn.code === null) return element("div", { class: "code none" }, "No program.");
  const byLine = new Map();
  for (const remark of turn.remarks) byLine.set(remark.line, [...(byLine.get(remark.line) || []), remark]);
  const made = element("div", { class: "code", tabindex: "0", role: "group", "aria-label": `Kernel of turn ${turn.turn}` });
  turn.code.forEach((text, index) => {
    const remarks = byLine.get(index + 1) || [];
    const kind = remarks.length ? `line marked ${remarks[0].kind}` : "line";
    made.append(element("div", { class: kind, "data-number": index + 1 }, ...coloured(text), "\n"));
    for (const remark of remarks) {
      made.append(element("div", { class: `remark ${remark.kind}`, role: "note" }, remark.text));
    }
  });
  if (turn.code_cut) made.append(element("div", { class: "remark note" }, `${turn.code_cut} more characters are left out`));
  return made;
}

function completionBlock(turn) {
  if (turn.completion === null) return element("div", { class: "completion" });
  const note = turn.completion_cut ? ` (${turn.completion_cut} characters left out)` : "";
  return element("details", { class: "completion" },
    element("summary", {}, `Whole answer${note}`), element("pre", { tabindex: "0" }, turn.completion));
}
