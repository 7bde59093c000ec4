use super::*;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use std::collections::BTreeMap;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

fn drain(aging: &mut Aging) -> Vec<u32> {
    let mut order = Vec::new();
    while let Some(front) = aging.front(Queue::Plain, Instant::MAX) {
        order.push(front.tag);
        aging.remove(Queue::Plain, front.slot);
    }
    aging.check();
    order
}

#[test]
fn the_front_is_the_earliest_and_waits_for_its_time() {
    let mut aging = Aging::default();
    for (tag, millis) in [(1, 5000), (2, 1000), (3, 3000), (4, 1700), (5, 1200)] {
        aging.insert(Queue::Plain, tag, at(millis));
    }
    assert_eq!(aging.earliest(Queue::Plain), at(1000));
    assert_eq!(aging.front(Queue::Plain, at(999)), None);
    let front = aging.front(Queue::Plain, at(1000)).unwrap();
    assert_eq!((front.tag, front.end), (2, at(1500)));
    aging.put_at(Queue::Plain, front.slot, at(4000));
    aging.check();
    assert_eq!(drain(&mut aging), [5, 4, 3, 2, 1]);
    assert_eq!((aging.len(Queue::Plain), aging.earliest(Queue::Plain)), (0, Instant::MAX));
    assert!(aging.chunks.is_empty(), "an empty one takes nothing");
}

#[test]
fn times_never_come_too_early() {
    assert_eq!([1, 499, 500, 501].map(|millis| not_before(at(millis))), [500, 500, 500, 1000].map(at));
}

/// However many runs there have been: the order is right to a part of the age, and nothing is lost.
#[test]
fn the_order_is_right_to_a_part_of_the_age() {
    let mut aging = Aging::default();
    let mut when = BTreeMap::new();
    for tag in 0..20_000u32 {
        let now = u64::from(tag) * 700;
        aging.note(at(now));
        aging.insert(Queue::Plain, tag, at(now));
        when.insert(tag, now);
        if tag % 1000 == 0 {
            aging.check();
        }
    }
    assert!(aging.runs(Queue::Plain) <= MAX_RUNS);
    let now = 20_000 * 700;
    let mut latest = 0;
    for tag in drain(&mut aging) {
        let this = when[&tag];
        // Nothing comes long after something younger.
        assert!(latest.max(this) - this <= (now - this) / 2 + 500, "{tag}: {this} after {latest}");
        latest = latest.max(this);
    }
}

#[test]
fn random_steps_keep_every_invariant() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut aging = Aging::default();
    let mut slots: Vec<(Queue, Slot, u32)> = Vec::new();
    let queues = [Queue::Plain, Queue::Pinned, Queue::Expiry];
    for step in 0..30_000u32 {
        let now = u64::from(step) * 100;
        aging.note(at(now));
        let time = at(random.random_range(now / 2..now + 30_000));
        match random.random_range(0..10) {
            0..4 => {
                let queue = queues[random.random_range(0..3)];
                slots.push((queue, aging.insert(queue, step, time), step));
            }
            4..7 if !slots.is_empty() => {
                let (queue, slot, _) = slots.swap_remove(random.random_range(0..slots.len()));
                aging.remove(queue, slot);
            }
            7..9 if !slots.is_empty() => {
                let (queue, slot, _) = slots[random.random_range(0..slots.len())];
                aging.put_at(queue, slot, time);
            }
            _ => {
                aging.front(queues[random.random_range(0..3)], at(now));
            }
        }
        if step % 500 == 0 {
            let mut seen = aging.check();
            let mut expected = slots.clone();
            seen.sort_by_key(|of| of.2);
            expected.sort_by_key(|of| of.2);
            assert_eq!(seen, expected);
        }
    }
}
