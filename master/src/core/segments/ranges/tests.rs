use super::*;
use proptest::prelude::*;

#[test]
fn bins_cover_every_size_and_grow_with_it() {
    let mut before = (0, 0);
    for power in 0..61 {
        for size in [(1u64 << power) - 1, 1 << power, (1 << power) + 1, (1 << power) + (1 << power) / 3] {
            let (class, step) = bin_of(size.max(1));
            assert!(largest_in_bin(class, step) >= size, "{size}");
            assert!((class, step) >= before || size < 4, "{size}");
            before = (class, step);
        }
    }
    assert!(bin_of(MAX_CAPACITY).0 < CLASSES);
    assert_eq!(mem::size_of::<Range>(), 32);
}

#[test]
fn takes_the_whole_segment_and_gives_it_back() {
    for capacity in [1, 7, 8, 9, 1001, 64 << 20, MAX_CAPACITY] {
        let mut ranges = Ranges::new(capacity);
        assert_eq!(ranges.allocate(capacity, 1).map(|(_, start)| start), Some(0));
        assert_eq!(ranges.allocate(1, 1), None);
        assert_eq!(ranges.fit_limit(), 0);
        ranges.release(ranges.first);
        assert!(ranges.check().is_empty());
    }
    assert_eq!(Ranges::new(8).allocate(9, 0), None);
}

#[test]
fn a_released_size_is_found_again_although_its_bin_holds_smaller_ones() {
    let mut ranges = Ranges::new(1 << 20);
    let taken: Vec<_> = (0..40).map(|i| ranges.allocate(1000 + i % 2 * 8, i).unwrap().0).collect();
    let rest = ranges.allocate((1 << 20) - 20 * 2008, 0).unwrap().0;
    for pair in taken.chunks(4) {
        ranges.release(pair[1]);
    }
    assert!(ranges.allocate(1008, 7).is_some());
    assert_eq!(ranges.allocate(1009, 7), None);
    ranges.release(rest);
    ranges.check();
}

#[test]
fn memory_of_the_slab_is_given_back_when_the_last_range_is() {
    let mut ranges = Ranges::new(1 << 20);
    let taken: Vec<_> = (0..10_000).map(|i| ranges.allocate(64, i).unwrap().0).collect();
    assert!(ranges.slots() >= 10_000);
    for index in taken {
        ranges.release(index);
    }
    assert_eq!(ranges.slots(), CHUNK);
    assert!(ranges.take_garbage().len() > 50);
    ranges.check();
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Release(usize),
    Aside(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..300).prop_map(Step::Take),
        1 => (1u64..5000).prop_map(Step::Take),
        3 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Aside),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_plain_model(capacity in 1u64..20_000, steps in steps()) {
        let mut ranges = Ranges::new(capacity);
        let mut model: Vec<(RangeIndex, u64, u64, RangeState)> = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Take(size) => {
                    let mut taken: Vec<_> = model.iter().map(|&(_, start, size, _)| (start, size)).collect();
                    taken.sort_unstable();
                    let mut end = 0;
                    let mut largest = 0;
                    for (start, size) in taken {
                        largest = largest.max(start.saturating_sub(end));
                        end = (start + size).next_multiple_of(ALIGN);
                    }
                    largest = largest.max(capacity.saturating_sub(end));
                    let got = ranges.allocate(size, at as u64);
                    prop_assert_eq!(got.is_some(), size <= largest, "{} of {}", size, largest);
                    if let Some((index, start)) = got {
                        model.push((index, start, size, RangeState::Held));
                    }
                }
                Step::Release(which) if !model.is_empty() => {
                    let (index, _, size, _) = model.swap_remove(which % model.len());
                    prop_assert_eq!(ranges.release(index), size);
                }
                Step::Aside(which) if !model.is_empty() => {
                    let which = which % model.len();
                    if model[which].3 == RangeState::Held {
                        ranges.set_aside(model[which].0);
                        model[which].3 = RangeState::Aside;
                    }
                }
                Step::Release(_) | Step::Aside(_) => {}
            }
            let mut expected: Vec<_> = model.iter().map(|&(_, start, size, state)| (start, size, state)).collect();
            expected.sort_unstable_by_key(|range| range.0);
            prop_assert_eq!(ranges.check(), expected);
        }
    }
}
