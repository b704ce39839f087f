// Arms, held against each other.
const figureNames = { rate: "I/Os a second", mean: "mean response", p99: "p99 response", cpu: "CPU for a million I/Os", orders: "New-Orders a minute", took: "how long it took" };
function amount(value, name) {
  if (name === "mean" || name === "p99") return time(value / 1e6);
  return name === "cpu" || name === "took" ? `${value.toFixed(1)} s` : rate(value);
}
function says(one) {
  if (one.void) return ["nothing: void", "void"];
  const found = one.comparison.finding, more = one.figure === "rate" || one.figure === "orders";
  if (one.is_wide) return ["too wide to tell", "warn"];
  if (found === "no-difference") return ["no difference", "pass"];
  if (found === "inconclusive") return ["too few rounds", "warn"];
  const good = (found === "higher") === more;
  const words = one.figure === "cpu" ? ["less CPU", "more CPU"] : ["faster", "slower"];
  return [good ? words[0] : words[1], good ? "met" : "missed"];
}
function trialVerdict({ trial, findings }) {
  const word = findings.verdict === "PASS" ? "VALID" : findings.verdict;
  const main = findings.contrasts.filter((one) => !["p99", "cpu"].includes(one.figure));
  const few = !findings.contrasts.length || main.some((one) => one.comparison.finding === "inconclusive");
  const why = { PASS: "What is said below holds for this load on this machine.", INVALID: "What is void allows no conclusion.",
    INCONCLUSIVE: few ? "Too few rounds were whole and steady to say." : main.some((one) => one.is_wide)
      ? "Where it is too wide to tell, a difference of a tenth would not have shown either." : "Intervals did not become as narrow as asked." }[findings.verdict];
  const marks = [trial.quick ? "quick: a sketch, and no result" : null, trial.locked ? null : "the profile was modified: not to be held against others",
    trial.narrow ? `rounds went on until intervals reached ${(trial.within * 100).toFixed(1)}% either way`
      : trial.runs.length < trial.arms.length * trial.rounds ? "ended before its time"
      : trial.within ? `after all rounds not every interval reaches less than ${(trial.within * 100).toFixed(1)}% either way` : null].filter(Boolean);
  return element("section", { class: `verdict ${findings.verdict}` }, element("strong", {}, text(word)),
    element("div", {}, element("p", {}, text(why)), marks.map((mark) => element("p", { class: "soft" }, text(mark)))));
}
function forest({ trial, findings, confidence }) {
  const several = trial.arms.length > 2;
  const all = findings.contrasts.map((one) => ({ ...one.comparison, figure: one.figure, void: one.void,
    name: several ? `${one.point}: ${trial.arms[one.arm]}` : `${one.point}: ${figureNames[one.figure]}`, says: says(one)[0] }))
    .filter((one) => one.low > 0 && one.high !== null);
  if (!all.length) return null;
  const colour = (one) => (["faster", "less CPU"].includes(one.says) ? css("--blue") : ["slower", "more CPU"].includes(one.says) ? css("--orange") : css("--soft"));
  const left = Math.min(260, width * 0.45);
  const draw = (rows) => Plot.plot({ ...base(), width, height: 60 + rows.length * 26, marginLeft: left, grid: true,
    x: { type: "log", label: `ratio to ${trial.arms[0]} →`, tickFormat: ".2f", inset: 8 }, y: { domain: rows.map((one) => one.name), label: null },
    marks: [Plot.ruleX([1], { stroke: css("--ink"), strokeDasharray: "4 3" }),
      Plot.link(rows, { x1: "low", x2: "high", y1: "name", y2: "name", stroke: colour, strokeWidth: 3 }),
      Plot.dot(rows, { x: "ratio", y: "name", r: 4.5, fill: colour, tip: true,
        title: (d) => `${d.name}\n${d.ratio.toFixed(3)} (${d.low.toFixed(3)} to ${d.high.toFixed(3)}): ${d.says}` })] });
  const reads = `Ratio with its interval; of equal arms all intervals together hold 1 in ${(confidence * 100).toFixed(0)} of 100 comparisons. Grey: no difference that can be told, or void. Blue: better than ${trial.arms[0]}. Orange: worse.`;
  if (!several) return [element("h2", {}, text("What differs")), figure(reads, draw(all))];
  // A chart of everything would be longer than anybody looks: the first figure is shown, the others are a click away.
  const kinds = [...new Set(all.map((one) => one.figure))];
  return [element("h2", {}, text("What differs")), kinds.map((kind, at) => {
    const chart = figure(`${figureNames[kind]}. ${at ? "" : reads}`, draw(all.filter((one) => one.figure === kind)));
    return at ? element("details", {}, element("summary", {}, text(figureNames[kind])), chart) : chart;
  })];
}
// What each arm did, whatever can be concluded from it.
function levels({ trial, findings }) {
  const of = (kind) => findings.levels.filter((level) => level.figure === kind).flatMap((level) => level.medians.map((median, arm) => ({ point: level.point, arm: trial.arms[arm], median })))
    .filter((one) => one.median !== null);
  const nanoseconds = (kind) => kind === "mean" || kind === "p99";
  const draw = (kind) => {
    const dots = of(kind).map((one) => ({ ...one, value: nanoseconds(kind) ? one.median / 1e6 : one.median }));
    if (!dots.length) return null;
    const names = [...new Set(dots.map((dot) => dot.point))];
    return figure(`${figureNames[kind]}: the median of each arm's runs.`, Plot.plot({ ...base(), width, height: 70 + names.length * 22, marginLeft: Math.min(270, width * 0.45), grid: true,
      x: { label: nanoseconds(kind) ? "ms →" : `${figureNames[kind]} →`, type: nanoseconds(kind) ? "log" : "linear", zero: !nanoseconds(kind), tickFormat: nanoseconds(kind) ? "~r" : "~s", inset: 8 },
      y: { domain: names, label: null }, color: { legend: true, domain: trial.arms },
      marks: [Plot.dot(dots, { x: "value", y: "point", fill: "arm", r: 4.5, tip: true, title: (d) => `${d.arm}, ${d.point}\n${amount(d.median, kind)}` })] }));
  };
  const drawn = ["rate", "p99", "orders"].map(draw).filter(Boolean);
  return drawn.length ? [element("h2", {}, text("What each did")), drawn] : null;
}
function rounds({ trial, findings }) {
  const rates = findings.contrasts.filter((one) => one.figure === "rate" || one.figure === "orders");
  const dots = rates.flatMap((one) => one.comparison.pairs.flatMap(([a, b], round) => [
    ...(one.arm === 1 ? [{ point: one.point, round: round + 1, arm: trial.arms[0], iops: a }] : []),
    { point: one.point, round: round + 1, arm: trial.arms[one.arm], iops: b }]));
  if (!dots.length) return null;
  const names = [...new Set(dots.map((dot) => dot.point))], what = figureNames[rates[0].figure];
  return [element("h2", {}, text("Round by round")), names.map((name) => figure(`${name}: each run's ${what}.`, Plot.plot({ ...base(), width, height: 180, marginLeft: 60, grid: true,
    x: { label: "round →", tickFormat: "d", interval: 1 }, y: { label: `↑ ${what}`, zero: true, tickFormat: "~s" },
    color: { legend: true, domain: trial.arms, range: trial.arms.length === 2 ? [css("--blue"), css("--orange")] : undefined },
    marks: [Plot.line(dots.filter((dot) => dot.point === name), { x: "round", y: "iops", stroke: "arm" }),
      Plot.dot(dots.filter((dot) => dot.point === name), { x: "round", y: "iops", fill: "arm", tip: true })] })))];
}
const interval = ({ low, high }) => (low > 0 && high !== null ? `${low.toFixed(3)} to ${high.toFixed(3)}` : "–");
function contrasts({ trial, findings }) {
  const of = (level, arm) => findings.contrasts.find((one) => one.point === level.point && one.figure === level.figure && one.arm === arm);
  const median = (level, arm) => (level.medians[arm] === null ? "–" : amount(level.medians[arm], level.figure));
  const voids = [...new Set(findings.contrasts.filter((one) => one.void).map((one) => `${one.point}: ${one.void}`))];
  return [element("h2", {}, text("Every figure")),
    trial.arms.length > 2 ? armByArm(trial, findings, of, median) : oneByOne(trial, findings, of, median),
    [...voids, ...new Set(findings.contrasts.filter((one) => one.unsteady).map((one) => `${one.point}: rounds that did not become steady and are left out: ${one.unsteady}`)), ...findings.unlike.map((why) => `Not alike: ${why}`), ...findings.left_out].map((why) => element("p", { class: "soft" }, text(why))),
    trial.arms.length > 2 ? findings.spread.map(([point, spread]) => element("p", {}, text(`${point}: the best arm does ${spread.toFixed(2)} times the I/Os of the worst.`))) : null];
}
// How far the worst of an arm's runs can be trusted at this point.
function grade(level, arm) {
  const worst = level.grades[arm];
  return worst ? element("span", { class: `grade ${worst}` }, text(worst)) : text("");
}
// Rules that were not kept, and how busy processors were.
function beside({ trial, findings }) {
  const sets = new Map();
  for (const one of findings.beside.filter((one) => one.against.length)) {
    const rules = one.against.join(", ");
    sets.set(rules, [...(sets.get(rules) ?? []), one.point]);
  }
  const against = [...sets].map(([rules, points]) => element("p", { class: "soft" },
    text(`Not kept, or to know, in a run: ${rules}: at ${points.length === findings.beside.length ? "every point" : points.join("; ")}`)));
  const rows = findings.beside.flatMap((one) => one.busy.map((busy, arm) => (busy ? [one.point, trial.arms[arm],
    ...[busy.min, busy.mean, busy.max].map((many) => many.toFixed(2)), busy.of ? `${busy.of}` : "–"] : null))).filter(Boolean);
  return [...against, rows.length ? [element("h2", {}, text("Processors")), table(["point", "arm", "least>", "mean>", "most>", "of>"], rows)] : null].flat();
}
// Two arms: a line for each of their medians, and what can be said of the second.
function oneByOne(trial, findings, of, median) {
  const rows = findings.levels.flatMap((level) => level.medians.map((_, arm) => {
    const one = of(level, arm);
    const told = [level.point, level.load ?? "", figureNames[level.figure], trial.arms[arm], median(level, arm), grade(level, arm)];
    if (!one) return [...told, "", "", "", ""];
    const { ratio, detectable } = one.comparison, [word, kind] = says(one);
    return [...told, one.comparison.pairs.length ? ratio.toFixed(3) : "–", interval(one.comparison),
      element("span", { class: kind }, text(word)), detectable === null ? "–" : `${(detectable * 100).toFixed(1)}%`];
  }));
  return table(["point", "loop", "figure", "arm", "median>", "trust", `÷ ${trial.arms[0]}>`, "interval", "says", "would have shown>"], rows);
}
// More arms: a column for each, with its median, its ratio to the first and what that says.
function armByArm(trial, findings, of, median) {
  const cell = (level, arm) => {
    const one = of(level, arm);
    if (!one) return element("div", {}, text(`${median(level, arm)} `), grade(level, arm));
    const { ratio, detectable, pairs } = one.comparison, [word, kind] = says(one);
    const line = pairs.length ? [element("small", { class: "soft" }, text(`× ${ratio.toFixed(3)} (${interval(one.comparison)})`)), element("br")] : [];
    return element("div", { title: detectable === null ? "" : `a difference of ${(detectable * 100).toFixed(1)}% would have shown` },
      text(`${median(level, arm)} `), grade(level, arm), element("br"), line, element("span", { class: kind }, text(word)));
  };
  const figures = [...new Set(findings.levels.map((level) => level.figure))];
  return figures.map((figure) => [element("h3", {}, text(figureNames[figure])),
    table(["point", ...trial.arms.map((arm) => `${arm}>`)],
      findings.levels.filter((level) => level.figure === figure).map((level) => [element("div", {}, text(level.point), level.load ? element("small", { class: "soft" }, element("br"), text(level.load)) : text("")),
        ...trial.arms.map((_, arm) => cell(level, arm))]))]);
}
function trialConfiguration({ trial, runs: made }) {
  return [element("h2", {}, text("What was run, and on what")),
    table(["", ""], [["profile", `${trial.profile}${trial.quick ? ", quick" : ""}${trial.locked ? "" : ", modified"}${longer(trial)}`],
      ...trial.arms.map((arm, number) => [`arm ${arm}`, made.find((one) => one.turn.arm === number)?.targets.join(", ") ?? "–"]),
      ...trial.arms.flatMap((arm, number) => trial.systems[number] ? system(trial.systems[number]).map(([name, what]) => [name.replace("the target", arm), what]) : []),
      ...(trial.systems.some((one) => one) ? [] : [["behind the arms", "not told: --system-a FILE and --system-b FILE, or 'system' of an arm, say what these are the figures of"]]),
      ...(trial.shared ?? []).map((one) => ["shares of a capacity are, for every arm, of what the least does", `${one.arms.map((most, arm) => `${trial.arms[arm]} ${rate(most)}`).join(", ")} I/Os a second of ${one.streams.join(", ")}`]),
      ...Object.entries(trial.commands), ...Object.entries(trial.machine), ["version", trial.version], [trial.arms_hash ? "again, in the folder of the raw data" : "again", element("code", {}, text(trial.reproduce))]]),
    element("details", {}, element("summary", {}, text("Every run")), table(["round>", "arm", "verdict", "raw data"],
      made.map((one) => [`${one.turn.round + 1}`, trial.arms[one.turn.arm], one.verdict, element("code", {}, text(one.bundle.slice(0, 16) || "not kept"))])))];
}
