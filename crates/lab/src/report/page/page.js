// All of it, in the order in which it is read.
for (const one of runs.filter((one) => one.trial)) {
  root.append(...[element("h1", {}, text(`${one.trial.profile}: ${one.trial.arms.join(" against ")}`)),
    element("p", { class: "soft" }, text(new Date(one.trial.began * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC")),
    trialVerdict(one), levels(one), forest(one), rounds(one), contrasts(one), beside(one), trialConfiguration(one)].flat(3).filter(Boolean));
}
for (const run of runs.filter((one) => one.run)) {
  root.append(...[
    element("h1", {}, text(`${run.run.profile} on ${run.run.targets.join(", ")}`)),
    element("p", { class: "soft" }, text(new Date(run.run.began * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC")),
    verdict(run), requirements(run), migration(run), chain(run), tiles(run), outages(run), phases(run), search(run), figures(run), reduction(run), curve(run), cliff(run), heat(run), points(run), configuration(run),
  ].flat(3).filter(Boolean));
}
document.title = runs.map((one) => (one.trial ? `${one.trial.profile}: ${one.trial.arms.join(" against ")}` : `${one.run.profile}: ${one.summary.verdict}`)).join(", ");
