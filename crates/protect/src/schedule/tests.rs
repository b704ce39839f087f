//! Schedules against a model that looks at every minute, and against dates worked out by hand.

use super::*;
use jiff::civil::DateTime;
use proptest::prelude::*;

const HOUR: u64 = 60 * MINUTE;

fn zone(name: &str) -> Zone {
    name.parse().unwrap()
}

fn schedule(every: &str, at: &str, zone_name: &str, window: &str) -> Schedule {
    let window = (!window.is_empty()).then(|| window.parse().unwrap());
    let at = (!at.is_empty()).then_some(at);
    Schedule::new(every.parse().unwrap(), at, zone(zone_name), window).unwrap()
}

fn utc(text: &str) -> WallNanos {
    Zone::utc().instant(text.parse::<DateTime>().unwrap())
}

/// The first slots after an instant, as clocks in the schedule's zone show them.
fn shown(schedule: &Schedule, after: WallNanos, count: usize) -> Vec<String> {
    let following = |last: &WallNanos| Some(schedule.following(*last));
    let slots = std::iter::successors(Some(schedule.following(after)), following);
    slots.take(count).map(|slot| schedule.zone().local(slot).strftime("%a %F %H:%M").to_string()).collect()
}

#[test]
fn slots_by_hand() {
    let from = utc("2026-11-23T18:45");
    for (every, at, slots) in [
        ("15m", "", ["Mon 2026-11-23 19:00", "Mon 2026-11-23 19:15"]),
        ("15m", "00:10", ["Mon 2026-11-23 18:55", "Mon 2026-11-23 19:10"]),
        ("2h", "", ["Mon 2026-11-23 20:00", "Mon 2026-11-23 22:00"]),
        ("1d", "02:00", ["Tue 2026-11-24 02:00", "Wed 2026-11-25 02:00"]),
        ("24h", "02:00", ["Tue 2026-11-24 02:00", "Wed 2026-11-25 02:00"]),
        ("2d", "", ["Wed 2026-11-25 00:00", "Fri 2026-11-27 00:00"]),
        ("1w", "Sunday 02:30", ["Sun 2026-11-29 02:30", "Sun 2026-12-06 02:30"]),
        ("1w", "", ["Mon 2026-11-30 00:00", "Mon 2026-12-07 00:00"]),
        ("1month", "31 01:00", ["Mon 2026-11-30 01:00", "Thu 2026-12-31 01:00"]),
        ("1month", "last 01:00", ["Mon 2026-11-30 01:00", "Thu 2026-12-31 01:00"]),
        ("3month", "", ["Fri 2027-01-01 00:00", "Thu 2027-04-01 00:00"]),
        ("1y", "02-29 12:00", ["Sun 2027-02-28 12:00", "Tue 2028-02-29 12:00"]),
        ("12month", "", ["Fri 2027-01-01 00:00", "Sat 2028-01-01 00:00"]),
    ] {
        assert_eq!(shown(&schedule(every, at, "UTC", ""), from, 2), slots, "{every} {at}");
    }
}

/// Goal: where clocks are changed a run a day is a run a day, and fifteen minutes are fifteen minutes.
#[test]
fn clocks_that_are_changed() {
    let forward = utc("2026-03-28T12:00");
    let daily = schedule("1d", "02:30", "Europe/Berlin", "");
    assert_eq!(shown(&daily, forward, 2), ["Sun 2026-03-29 03:30", "Mon 2026-03-30 02:30"]);
    let back = utc("2026-10-24T12:00");
    assert_eq!(shown(&daily, back, 2), ["Sun 2026-10-25 02:30", "Mon 2026-10-26 02:30"]);
    let often = schedule("15m", "", "Europe/Berlin", "");
    let mut slot = back;
    for _ in 0..4 * 48 {
        let next = often.following(slot);
        assert_eq!(next - slot, 15 * MINUTE);
        slot = next;
    }
    // Noon in Apia, on both sides of the day that never was.
    let apia = schedule("1d", "12:00", "Pacific/Apia", "");
    let slots = shown(&apia, utc("2011-12-29T10:00"), 3);
    assert_eq!(slots, ["Thu 2011-12-29 12:00", "Sat 2011-12-31 12:00", "Sun 2012-01-01 12:00"]);
}

#[test]
fn missed_runs_are_caught_up_once() {
    let hourly = schedule("1h", "", "UTC", "");
    let last = utc("2026-11-23T10:00");
    assert_eq!(hourly.due(last, utc("2026-11-23T10:59")), None);
    let now = utc("2026-11-23T17:20");
    assert_eq!(hourly.next(last, now), now, "at once");
    let slot = hourly.due(last, now);
    assert_eq!(slot, Some(utc("2026-11-23T17:00")));
    assert_eq!(hourly.due(slot.unwrap(), now), None, "one run for seven slots");
    assert_eq!(hourly.next(slot.unwrap(), now), utc("2026-11-23T18:00"));
}

/// Goal: a clock that was set back does not stop runs until it is where it was.
#[test]
fn a_slot_of_the_future_counts_for_now() {
    let hourly = schedule("1h", "", "UTC", "");
    let (last, now) = (utc("2036-01-01T00:00"), utc("2026-11-23T17:20"));
    assert_eq!(hourly.due(last, now), None);
    assert_eq!(hourly.next(last, now), utc("2026-11-23T18:00"));
}

/// Goal: outside the window slots wait, and are one run when it opens.
#[test]
fn windows_gather_what_waits() {
    let nightly = schedule("2h", "", "Europe/Berlin", "mon-fri 22:00-06:00");
    let berlin = |text: &str| zone("Europe/Berlin").instant(text.parse::<DateTime>().unwrap());
    let friday = berlin("2026-11-27T23:10");
    let due = nightly.due(berlin("2026-11-27T20:00"), friday);
    assert_eq!(due, Some(berlin("2026-11-27T22:00")));
    assert_eq!(nightly.next(due.unwrap(), friday), berlin("2026-11-28T00:00"), "still Friday's window");
    let last = berlin("2026-11-28T04:00");
    let saturday = berlin("2026-11-28T06:00");
    assert!(!nightly.is_open(saturday) && nightly.is_open(saturday - 1));
    assert_eq!(nightly.due(last, saturday), None, "closed");
    assert_eq!(nightly.next(last, saturday), berlin("2026-11-30T22:00"), "Monday's");
    let all_day = schedule("15m", "", "UTC", "sat,sun 00:00-24:00");
    assert!(all_day.is_open(utc("2026-11-29T23:59")) && !all_day.is_open(utc("2026-11-30T00:00")));
}

#[test]
fn what_is_no_schedule_is_refused() {
    for every in
        ["", "2", "h", "0m", "7h", "25h", "2w", "5month", "2y", "0d", "400d", "-1h", "1.5h", "99999999999m"]
    {
        assert!(every.parse::<Every>().is_err(), "{every}");
    }
    for (every, at) in [
        ("15m", "00:15"),
        ("15m", "mon 00:10"),
        ("1d", "24:00"),
        ("1d", "2"),
        ("1d", "2:0"),
        ("1d", "mon 02:00"),
        ("1w", "02:00"),
        ("1w", "m 02:00"),
        ("1month", "0 02:00"),
        ("1month", "32 02:00"),
        ("1y", "02-30 02:00"),
        ("1y", "last 02:00"),
        ("1d", "é:00"),
    ] {
        let made = Schedule::new(every.parse().unwrap(), Some(at), Zone::utc(), None);
        assert!(made.is_err(), "{every} {at}");
    }
    for window in
        ["", "22:00", "22:00-25:00", "24:00-06:00", "mon 22:00", "some 22:00-06:00", "mon- 1:00-2:00"]
    {
        assert!(window.parse::<Window>().is_err(), "{window}");
    }
}

fn everys() -> impl Strategy<Value = Every> {
    let divisors: Vec<u32> =
        (1..MINUTES_OF_A_DAY).filter(|minutes| MINUTES_OF_A_DAY % minutes == 0).collect();
    prop_oneof![
        prop::sample::select(divisors).prop_map(Every::Minutes),
        (1u32..=366).prop_map(Every::Days),
        Just(Every::Week),
        prop::sample::select(vec![1, 2, 3, 4, 6]).prop_map(Every::Months),
        Just(Every::Year),
    ]
}

fn zones() -> impl Strategy<Value = Zone> {
    let names =
        ["UTC", "Europe/Berlin", "America/New_York", "Asia/Beirut", "Australia/Lord_Howe", "Asia/Kathmandu"];
    prop::sample::select(names.to_vec()).prop_map(zone)
}

fn windows() -> impl Strategy<Value = Option<Window>> {
    let texts =
        ["22:00-06:00", "sat,sun 00:00-24:00", "mon-fri 20:00-05:00", "02:15-02:45", "wed 12:00-12:00"];
    prop::option::of(prop::sample::select(texts.to_vec()).prop_map(|text| text.parse().unwrap()))
}

fn schedules() -> impl Strategy<Value = Schedule> {
    (everys(), zones(), windows())
        .prop_map(|(every, zone, window)| Schedule::new(every, None, zone, window).unwrap())
}

/// 2020 to 2050, where rules of zones are known or go on as they are.
fn instants() -> impl Strategy<Value = WallNanos> {
    (utc("2020-01-01T00:00") / MINUTE..utc("2050-01-01T00:00") / MINUTE).prop_map(|minute| minute * MINUTE)
}

proptest! {
    /// Goal: what is written is read as the same.
    #[test]
    fn texts_come_back(schedule in schedules()) {
        let every = schedule.every().to_string().parse::<Every>().unwrap();
        let window = schedule.window().map(|window| window.to_string().parse().unwrap());
        let again = Schedule::new(every, Some(&schedule.at()), schedule.zone().clone(), window).unwrap();
        prop_assert_eq!(again, schedule);
    }

    /// Goal: forwards and backwards find the same slots, and a run is due exactly from when it was said to be next.
    #[test]
    fn due_when_it_was_said(schedule in schedules(), since in instants(), later in 0u64..400 * 24 * 60) {
        let slot = schedule.following(since);
        prop_assert!(slot > since);
        prop_assert_eq!(schedule.newest(slot), Some(slot));
        prop_assert!(schedule.newest(slot - 1).is_none_or(|earlier| earlier <= since));
        let next = schedule.next(since, since);
        prop_assert!(next >= slot && schedule.due(since, next).is_some());
        prop_assert!(next <= since || schedule.due(since, next - 1).is_none());
        let now = since + later * MINUTE;
        let is_due = schedule.due(since, now).is_some();
        prop_assert_eq!(is_due, schedule.next(since, now) == now && now > since);
    }

    /// Goal: from one slot to the next it is never longer than what was asked for.
    #[test]
    fn never_longer_than_asked(step in 1u32..=24, zone in zones(), after in instants()) {
        let minutes = [1, 5, 10, 15, 30, 60, 120, 360, 720][step as usize % 9];
        let schedule = Schedule::new(Every::Minutes(minutes), None, zone, None).unwrap();
        let slot = schedule.following(after);
        prop_assert!(schedule.following(slot) - slot <= u64::from(minutes) * MINUTE);
    }

    /// Goal: what a window calls open is what it shows on a clock, but for hours that are shown twice or never.
    #[test]
    fn open_by_the_clock(minute in instants()) {
        let window: Window = "mon-fri 20:00-05:00".parse().unwrap();
        let local = Zone::utc().local(minute);
        let day = local.weekday().to_monday_zero_offset();
        let open = (local.hour() >= 20 && day < 5) || (local.hour() < 5 && (1..=5).contains(&day));
        prop_assert_eq!(window.opening(&Zone::utc(), minute) == minute, open);
        prop_assert!(window.opening(&Zone::utc(), minute) - minute <= 64 * HOUR);
    }

    #[test]
    fn noise_is_survived(text in "\\PC{0,20}") {
        let _ = (text.parse::<Every>(), text.parse::<Window>(), text.parse::<Zone>());
        for every in [Every::Minutes(60), Every::Days(1), Every::Week, Every::Months(1), Every::Year] {
            let _ = Schedule::new(every, Some(&text), Zone::utc(), None);
        }
    }
}
