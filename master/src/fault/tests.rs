use super::*;
use crate::clock::ManualClock;
use proptest::prelude::*;
use std::sync::mpsc;

fn faults() -> (Arc<Faults>, Arc<ManualClock>) {
    let clock = ManualClock::new(Instant::from_nanos(1));
    let faults = Faults::new(clock.clone());
    faults.enable();
    (faults, clock)
}

fn ask(faults: &Arc<Faults>, name: &str, query: &str) -> Result<(), FaultError> {
    faults.begin(FaultRequest::parse(name, query)?).map(|_| ())
}

fn target(threads: usize) -> FaultTarget {
    let hold_shard: HoldShard = Arc::new(|_, wait| {
        wait();
        true
    });
    FaultTarget { threads, hold_shard }
}

/// Runs `blocked` on a thread of its own; the receiver hears when it came back.
fn in_thread(blocked: impl FnOnce() + Send + 'static) -> mpsc::Receiver<()> {
    let (done, hears) = mpsc::channel();
    std::thread::spawn(move || {
        blocked();
        let _ = done.send(());
    });
    hears
}

const SECOND: Duration = Duration::from_secs(1);

fn is_blocked(hears: &mpsc::Receiver<()>) -> bool {
    hears.recv_timeout(Duration::from_millis(150)).is_err()
}

fn comes_back(hears: &mpsc::Receiver<()>) {
    hears.recv_timeout(10 * SECOND).expect("it goes on");
}

#[test]
fn nothing_is_injected_unless_enabled() {
    let faults = Faults::new(ManualClock::new(Instant::ZERO));
    faults.set_target(Some(target(2)));
    for (name, query) in [
        ("hold_shard", "index=7&for_ms=12000"),
        ("sleep_handlers", "ms=8000&for_ms=8000"),
        ("stick_thread", "index=0&for_ms=12000"),
        ("stop_accept", "for_ms=1"),
        ("pause_monitor", "for_ms=1"),
        ("fail_step", "step=clean_segment&times=2"),
        ("slow_step", "step=remove_record&ms=5&for_ms=10"),
    ] {
        assert_eq!(ask(&faults, name, query), Err(FaultError::Disabled), "{name}");
    }
    faults.before_handler();
    faults.in_data_thread(0);
    assert!(!faults.fails(FaultStep::CleanSegment) && faults.monitor_pause().is_none());
    assert_eq!(faults.list()["active"], json!([]));
}

#[test]
fn every_mistake_is_named() {
    for (name, query, message) in [
        ("hold_shards", "", "no such fault: hold_shards; there are hold_shard?index=&for_ms=, "),
        ("hold_shard", "", "hold_shard: index is missing; it is hold_shard?index=&for_ms="),
        ("hold_shard", "index=7", "hold_shard: for_ms is missing"),
        (
            "hold_shard",
            "index=1024&for_ms=1",
            "hold_shard: index=\"1024\" is not a whole number from 0 to 1023",
        ),
        ("hold_shard", "index=-1&for_ms=1", "index=\"-1\""),
        ("hold_shard", "index=7&for_ms=0", "for_ms=\"0\" is not a whole number from 1 to 600000"),
        ("hold_shard", "index=7&for_ms=1&shard=3", "hold_shard does not take \"shard\""),
        ("hold_shard", "index=7&index=8&for_ms=1", "hold_shard: index is given twice"),
        ("stop_accept", "for_ms", "for_ms=\"\""),
        ("sleep_handlers", "ms=60001&for_ms=1", "ms=\"60001\" is not a whole number from 1 to 60000"),
        (
            "fail_step",
            "step=sweep&times=1",
            "step=\"sweep\" is not one of promote bind first_probe clean_segment remove_segment remove_record",
        ),
        ("fail_step", "step=clean_segment&times=0", "times=\"0\""),
    ] {
        let error = FaultRequest::parse(name, query).expect_err(query).to_string();
        assert!(error.contains(message), "{error}");
    }
    let (faults, _) = faults();
    assert_eq!(ask(&faults, "stick_thread", "index=0&for_ms=1"), Err(FaultError::NothingServes));
    assert_eq!(ask(&faults, "hold_shard", "index=0&for_ms=1"), Err(FaultError::NothingServes));
    faults.set_target(Some(target(2)));
    let error = ask(&faults, "stick_thread", "index=2&for_ms=1");
    assert_eq!(error, Err(FaultError::NoSuchThread { index: 2, last: 1 }));
    assert_eq!(faults.list()["active"], json!([]));
}

#[test]
fn a_handler_sleeps_its_time_and_only_within_the_window() {
    let (faults, clock) = faults();
    ask(&faults, "sleep_handlers", "ms=2000&for_ms=3000").unwrap();
    let (one, two) = (faults.clone(), faults.clone());
    let hears = in_thread(move || one.before_handler());
    assert!(is_blocked(&hears));
    clock.advance(2 * SECOND);
    comes_back(&hears);
    clock.advance(SECOND);
    comes_back(&in_thread(move || two.before_handler()));
    assert_eq!(faults.handler_ms.load(Ordering::Relaxed), 0, "the hot path is free again");
}

#[test]
fn a_stuck_thread_is_that_one_and_a_clear_frees_it() {
    let (faults, _) = faults();
    faults.set_target(Some(target(2)));
    ask(&faults, "stick_thread", "index=1&for_ms=12000").unwrap();
    faults.in_data_thread(0);
    let stuck = faults.clone();
    let hears = in_thread(move || stuck.in_data_thread(1));
    assert!(is_blocked(&hears));
    assert_eq!(faults.list()["active"], json!([{"fault": "stick_thread", "index": 1, "left_ms": 12_000}]));
    faults.clear();
    comes_back(&hears);
    assert_eq!(faults.list()["active"], json!([]));
}

#[test]
fn a_hold_lasts_from_its_confirmation_to_its_end_and_can_be_prolonged() {
    let (faults, clock) = faults();
    let (done, hears) = mpsc::channel();
    faults.set_target(Some(FaultTarget {
        threads: 1,
        hold_shard: Arc::new(move |index, wait| {
            assert_eq!(index, 7);
            wait();
            let _ = done.send(());
            true
        }),
    }));
    let begin = |ms: u64| {
        let request = FaultRequest::parse("hold_shard", &format!("index=7&for_ms={ms}")).unwrap();
        faults.begin(request).unwrap().expect("it tells").blocking_recv().expect("held");
    };
    begin(1000);
    begin(3000);
    clock.advance(2 * SECOND);
    assert!(is_blocked(&hears));
    clock.advance(SECOND);
    comes_back(&hears);
}

#[test]
fn the_acceptor_and_the_monitor_pause_until_the_end_or_the_stop() {
    let (faults, clock) = faults();
    let stop = Arc::new(AtomicBool::new(false));
    ask(&faults, "stop_accept", "for_ms=60000").unwrap();
    ask(&faults, "pause_monitor", "for_ms=20").unwrap();
    let (looping, stopped) = (faults.clone(), stop.clone());
    let hears = in_thread(move || looping.in_accept_loop(&stopped));
    assert!(is_blocked(&hears));
    stop.store(true, Ordering::Relaxed);
    comes_back(&hears);
    assert_eq!(faults.monitor_pause(), Some(Duration::from_millis(20)));
    clock.advance(SECOND);
    assert_eq!(faults.monitor_pause(), None);
}

#[test]
fn a_step_fails_as_often_as_asked_and_is_slow_within_the_window() {
    let (faults, clock) = faults();
    ask(&faults, "fail_step", "step=clean_segment&times=2").unwrap();
    assert!(!faults.fails(FaultStep::RemoveRecord));
    assert!(faults.fails(FaultStep::CleanSegment) && faults.fails(FaultStep::CleanSegment));
    assert!(!faults.fails(FaultStep::CleanSegment));
    ask(&faults, "slow_step", "step=remove_record&ms=1000&for_ms=1500").unwrap();
    let slow = faults.clone();
    let hears = in_thread(move || assert!(!slow.fails(FaultStep::RemoveRecord)));
    assert!(is_blocked(&hears));
    clock.advance(SECOND);
    comes_back(&hears);
    clock.advance(SECOND);
    assert!(!faults.fails(FaultStep::RemoveRecord));
}

proptest! {
    #[test]
    fn no_text_is_taken_for_another_request(name in "[a-z_]{0,16}", query in ".{0,64}") {
        // Whatever it says, it says it without a panic, and what it takes it takes whole.
        if let Ok(request) = FaultRequest::parse(&name, &query) {
            prop_assert!(query.contains('='), "{request:?}");
        }
    }
}
