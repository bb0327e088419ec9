use serde_json::{Value, json};

use super::sample::HistorySample;
use super::series::Columns;
use super::window::Window;
use super::*;
use crate::observe::view::{ChannelState, ErrorView, WorkerView};

fn view(applied: u64) -> ChannelView {
    let mut view = ChannelView { channel_name: "orders".to_owned(), ..ChannelView::default() };
    view.state = ChannelState::Running;
    view.lag_seconds = Some(0.0);
    view.backlog_transactions = Some(0);
    view.applied_transactions_total = applied;
    view.connection.service_state = "ON".to_owned();
    view
}

fn answer(history: &History, seconds: &str) -> Value {
    serde_json::to_value(history.answer(Some(seconds), None).expect("answers")).expect("JSON")
}

/// Returns the last `n` values of a column of the only channel.
fn tail(answer: &Value, column: &str, n: usize) -> Vec<Value> {
    let values = answer["channels"][0][column].as_array().expect("a column");
    values[values.len() - n..].to_vec()
}

#[test]
fn buckets_show_the_worst_and_rates_of_the_whole() {
    let sample = |second| HistorySample {
        second,
        state: ChannelState::Running,
        lag_seconds: Some(0.0),
        backlog_transactions: Some(0),
        backlog_bytes: None,
        received_transactions: second * 10,
        received_bytes: 0,
        applied_transactions: second * 7,
    };
    let mut samples: Vec<HistorySample> = (1000..1024).map(sample).collect();
    samples[13].lag_seconds = Some(3.5);
    samples[14].lag_seconds = None;
    samples[14].state = ChannelState::WaitingForSource;
    samples[4].state = ChannelState::Failed;
    samples[6].state = ChannelState::WaitingForSource;
    samples[8].state = ChannelState::WaitingForDelay;
    samples[2].backlog_transactions = Some(9);
    // The last bucket is incomplete, the first one empty.
    let window = Window::ending(1023, 30, 10);
    assert_eq!((window.first, window.count), (1000, 3));
    let columns = Columns::new(window, samples.iter());
    assert_eq!(columns.lag_seconds, [Some(0.0), Some(3.5), Some(0.0)]);
    assert_eq!(columns.backlog_transactions, [Some(9), Some(0), Some(0)]);
    assert_eq!(columns.backlog_bytes, [None; 3]);
    assert_eq!(columns.state[0], Some(ChannelState::Failed));
    assert_eq!(columns.state[1], Some(ChannelState::WaitingForSource));
    assert_eq!(columns.state[2], Some(ChannelState::Running));
    assert_eq!(columns.applied_transactions_per_second, [Some(7.0); 3]);
    assert_eq!(columns.received_transactions_per_second, [Some(10.0); 3]);
}

#[test]
fn what_was_slept_through_is_not_known() {
    let history = History::default();
    for second in (10_000..10_010).chain(10_100..10_105) {
        history.take(second, &[view(second)]);
        // The same second again changes nothing.
        history.take(second, &[view(0)]);
    }
    let answer = answer(&history, "300");
    assert_eq!((&answer["now"], &answer["step"]), (&json!(10_104), &json!(1)));
    let lag = tail(&answer, "lag_seconds", 96);
    assert_eq!(lag[0], 0.0);
    assert!(lag[1..91].iter().all(Value::is_null), "{lag:?}");
    let rates = tail(&answer, "applied_transactions_per_second", 5);
    assert_eq!(rates, [json!(null), json!(1.0), json!(1.0), json!(1.0), json!(1.0)]);
}

#[test]
fn a_clock_that_was_set_back_begins_again_after_a_gap() {
    let history = History::default();
    // One transaction in each second, whatever the clock shows.
    let seconds = (10_000..10_500).chain(10_200..10_300);
    for (applied, second) in seconds.enumerate() {
        history.take(second, &[view(applied as u64)]);
    }
    let answer = answer(&history, "300");
    assert_eq!(answer["now"], 10_299);
    let lag = tail(&answer, "lag_seconds", 300);
    assert!(lag[170].is_number() && lag[200].is_number(), "{lag:?}");
    assert!(lag[171..200].iter().all(Value::is_null), "{lag:?}");
    let rates = tail(&answer, "applied_transactions_per_second", 300);
    assert!(rates.iter().all(|rate| rate.is_null() || *rate == 1.0), "{rates:?}");
    assert_eq!(rates[201..], vec![json!(1.0); 99]);
    // A little is waited for.
    for second in [10_298, 10_297, 10_299] {
        history.take(second, &[view(9999)]);
    }
    assert_eq!(history.tracks.lock()[0].newest(), Some(10_299));
}

#[test]
fn an_hour_is_kept_and_no_more() {
    let history = History::default();
    for second in 20_000..30_000 {
        history.take(second, &[view(second * 3)]);
    }
    let answer = answer(&history, "3600");
    let rates = tail(&answer, "applied_transactions_per_second", 300);
    assert!(rates.iter().all(|rate| *rate == 3.0), "{rates:?}");
    assert_eq!(answer["first"], 30_000 - 3600);
    assert!(history.tracks.lock()[0].samples().count() < 3700);
}

#[test]
fn workers_are_rows_of_what_they_did() {
    let history = History::default();
    for (second, states) in [
        (500, vec![(1, "applying")]),
        (501, vec![(1, "waiting_for_turn"), (3, "preparing")]),
        (503, vec![(3, "committing"), (900, "applying")]),
    ] {
        let mut view = view(0);
        let worker = |(id, state): &(u16, &str)| WorkerView {
            worker_id: *id,
            state: (*state).to_owned(),
            ..WorkerView::default()
        };
        view.applier.workers = states.iter().map(worker).collect();
        history.take(second, &[view]);
    }
    let answer = answer(&history, "60");
    let workers = answer["channels"][0]["workers"].as_array().expect("rows");
    let ends: Vec<(u64, &str)> = workers
        .iter()
        .map(|row| {
            let states = row["states"].as_str().expect("text");
            assert_eq!(states.len(), 300);
            (row["worker_id"].as_u64().expect("a number"), &states[295..])
        })
        .collect();
    assert_eq!(ends, [(1, " 23 ."), (3, " .0 4")]);
    assert_eq!(answer["worker_states"][2], "applying");
}

#[test]
fn an_error_that_comes_back_is_one_entry_with_its_advice() {
    let history = History::default();
    let mut away = view(0);
    away.state = ChannelState::WaitingForSource;
    away.connection.service_state = "CONNECTING".to_owned();
    away.connection.last_error_message = Some("connection refused".to_owned());
    let mut failed = view(0);
    failed.state = ChannelState::Failed;
    failed.last_error = Some(ErrorView {
        number: 1062,
        message: "Duplicate entry".to_owned(),
        transaction: Some("u:7".to_owned()),
        ways_on: vec!["remove it".to_owned()],
        ..ErrorView::default()
    });
    for (second, view) in [(1, &away), (2, &away), (3, &view(0)), (4, &away), (5, &failed)] {
        history.take(second, std::slice::from_ref(view));
    }
    let answer = answer(&history, "60");
    let errors = answer["channels"][0]["errors"].as_array().expect("errors");
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!((&errors[0]["about"], &errors[0]["current"]), (&json!("source"), &json!(false)));
    assert_eq!((&errors[0]["first"], &errors[0]["last"]), (&json!(1), &json!(4)));
    assert_eq!((&errors[1]["number"], &errors[1]["current"]), (&json!(1062), &json!(true)));
    assert_eq!(errors[1]["transaction"], "u:7");
    assert_eq!(errors[1]["ways_on"], json!(["remove it"]));
    assert!(errors[0]["ways_on"][0].as_str().is_some_and(|way| way.contains("source runs")));
}

#[test]
fn a_wrong_number_is_refused() {
    let history = History::default();
    assert!(history.answer(None, None).is_ok());
    for wrong in ["59", "3601", "", "-60", "an hour"] {
        let why = history.answer(Some(wrong), None).expect_err("is refused");
        assert!(why.contains(&format!("{wrong:?}")) && why.contains("60..3600"), "{why}");
    }
}

#[test]
fn the_recent_minutes_are_short() {
    let history = History::default();
    for second in 20_000..21_000 {
        history.take(second, &[view(second * 3)]);
    }
    let recent = serde_json::to_value(history.recent()).expect("JSON");
    assert_eq!((&recent["now"], &recent["first"]), (&json!(20_999), &json!(20_400)));
    let channel = &recent["channels"][0];
    assert_eq!(channel["channel_name"], "orders");
    assert_eq!(channel["lag_seconds"], json!(vec![0.0; 60]));
    assert_eq!(channel["applied_transactions_per_second"], json!(vec![3.0; 60]));
}

#[test]
fn incidents_outlive_the_process_where_the_folder_is_ours() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("orders")).expect("created");
    let mut paused = view(0);
    paused.state = ChannelState::Paused;
    let history = History::new(folder.path().to_owned());
    history.take(1, std::slice::from_ref(&paused));
    history.keep(1, std::iter::empty());
    let again = || History::new(folder.path().to_owned());
    let shown = |history: &History| {
        history.take(3, &[view(0)]);
        history.incidents("orders").incidents.len()
    };
    assert_eq!(shown(&again()), 0, "another process may have the folder");
    history.keep(2, std::iter::once("orders"));
    assert_eq!(shown(&again()), 1);
    assert!(history.incidents("other").incidents.is_empty());
    // What can't be written is tried again.
    std::fs::remove_dir_all(folder.path().join("orders")).expect("removed");
    history.take(4, &[view(0)]);
    history.keep(4, std::iter::once("orders"));
    std::fs::create_dir(folder.path().join("orders")).expect("created");
    history.keep(5, std::iter::once("orders"));
    assert_eq!(shown(&again()), 0);
    history.keep(64, std::iter::once("orders"));
    assert_eq!(shown(&again()), 1);
}

#[test]
fn nobody_says_what_workers_do_on_a_target_that_is_away() {
    let history = History::default();
    for (second, state) in [(500, ChannelState::Running), (501, ChannelState::WaitingForTarget)] {
        let mut view = view(0);
        view.state = state;
        view.applier.workers = vec![WorkerView {
            worker_id: 0,
            state: "applying".to_owned(),
            ..WorkerView::default()
        }];
        history.take(second, &[view]);
    }
    let answer = answer(&history, "60");
    let row = answer["channels"][0]["workers"][0]["states"].as_str().expect("text").to_owned();
    assert_eq!(&row[298..], "2 ");
}

#[test]
fn charts_outlive_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("orders")).expect("created");
    // Totals begin at 0 with each process.
    for (first, rate) in [(50_003, 3), (50_140, 5)] {
        let history = History::new(folder.path().to_owned());
        for second in first..first + 95 {
            history.take(second, &[view((second - first) * rate)]);
        }
        history.close(std::iter::once("orders"));
    }
    // In the second in which the one before ended.
    let history = History::new(folder.path().to_owned());
    history.take(50_234, &[view(0)]);
    history.take(50_235, &[view(0)]);
    let answer = answer(&history, "300");
    let rates = &answer["channels"][0]["applied_transactions_per_second"];
    let rate =
        |second: usize| &rates[second - answer["first"].as_u64().expect("a number") as usize];
    for second in (50_005..50_097).chain(50_145..50_235) {
        let wanted = if second < 50_100 { 3.0 } else { 5.0 };
        assert_eq!(rate(second), wanted, "{second}: {rates}");
    }
    assert!((50_100..50_140).all(|second| rate(second).is_null()), "{rates}");
}

#[test]
fn nobody_waits_for_the_disk_on_which_a_new_channel_has_its_past() {
    let folder = tempfile::tempdir().expect("a folder");
    let channel = folder.path().join("orders");
    std::fs::create_dir(&channel).expect("created");
    // Who reads a FIFO waits until somebody has written to it and ended.
    let past = channel.join("history.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&past).status().expect("it runs");
    assert!(made.success());
    let history = Arc::new(History::new(folder.path().to_owned()));
    let taken = Arc::clone(&history);
    let taking = std::thread::spawn(move || taken.take(1000, &[view(1)]));
    // Opened once somebody reads.
    let disk = std::fs::OpenOptions::new().write(true).open(&past).expect("opens");
    let is_free = history.tracks.try_lock().is_some();
    drop(disk);
    taking.join().expect("no panic");
    assert!(is_free);
    assert_eq!(history.tracks.lock().len(), 1);
}
