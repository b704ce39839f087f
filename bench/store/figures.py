"""Rows of the table: what was measured, beside its goal. Medians of the rounds; a ratio is the median of the rounds'
ratios, with the smallest and the largest, so that a lucky round is seen."""

from statistics import median


def per_second(kept):
    return f"{kept['rate']:,.0f}/s"


def mib_per_second(kept):
    return f"{kept['bytes_rate'] / 2**20:,.0f} MiB/s"


def good(rounds):
    return [kept for kept in rounds if "failed" not in kept]


def row(title, measured, show, goals, note=""):
    """`measured`: for each arm the rounds, each what fio told or {'failed': why}."""
    notes = [note] if note else []
    arms = {}
    for arm, rounds in measured.items():
        kept = sorted(good(rounds), key=lambda one: one["rate"])
        if kept:
            arms[arm] = show(kept[len(kept) // 2])
        failed = [one["failed"] for one in rounds if "failed" in one]
        if failed:
            arms[arm] = arms.get(arm, "failed")
            notes.append(f"{arm}: {len(failed)} of {len(rounds)} rounds failed: {failed[0]}")
        short = sum(1 for one in kept if one.get("cut_short"))
        if short:
            notes.append(f"{arm}: {short} of {len(rounds)} rounds were cut short by time")
    return {"title": title, "arms": arms, "goals": goals, "note": "; ".join(notes)}


def goal(measured, peer, bound, key="rate", at_most=False, unit="×"):
    """Stonefold against a peer, or against a fixed bound. `bound` None: shown, not judged."""
    if peer is None:
        values = [kept[key] for kept in good(measured["stonefold"])]
    else:
        pairs = zip(measured["stonefold"], measured[peer])
        values = [ours[key] / theirs[key] for ours, theirs in pairs if "failed" not in ours and "failed" not in theirs]
    against = f"{unit} {peer}" if peer else unit
    return [judged(values, bound, at_most, against)]


def judged(values, bound, at_most, unit, condition="", digits=2):
    """One goal with its verdict. Rounds on both sides of the bound leave it open whether it is met; a condition says
    what was easier than the goal asks for, and the verdict then says so."""
    sign = "≤" if at_most else "≥"
    wanted = f"{sign}{bound:g} {unit}" if bound is not None else "beside"
    if not values:
        return {"goal": wanted, "figure": "—", "verdict": "not measured", "condition": condition}
    middle = median(values)
    figure = f"{middle:,.{digits}f} {unit}"
    if len(values) > 1:
        figure += f" ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
    if bound is None:
        return {"goal": wanted, "figure": figure, "verdict": "", "condition": condition, "values": values}
    met = [value <= bound if at_most else value >= bound for value in values]
    passed = middle <= bound if at_most else middle >= bound
    verdict = "PASS" if passed else "MISS"
    if any(met) and not all(met):
        verdict += ", but rounds differ"
    if condition:
        verdict += ", on less"
    return {"goal": wanted, "figure": figure, "verdict": verdict, "condition": condition, "values": values}


def quantile(values, share):
    """By nearest rank: a value that occurred."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 100) - 1))]
