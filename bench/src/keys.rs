//! Keys: unique, of one length, cheap to make.

use rand::Rng;

/// Lengths that can be asked for, bytes.
pub(crate) const LENGTHS: std::ops::RangeInclusive<usize> = 17..=1024;

/// Names the keys of one worker of one run: `k<run>-<worker>-<number>`, padded to the length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySpace {
    run: u16,
    worker: u16,
    digits: usize,
}

impl KeySpace {
    /// A run's own number, so that runs against one master do not meet.
    pub(crate) fn new_run() -> u16 {
        rand::rng().random()
    }

    /// `bytes` is one of [`LENGTHS`].
    pub(crate) fn new(run: u16, worker: usize, bytes: usize) -> KeySpace {
        KeySpace { run, worker: (worker % 4096) as u16, digits: bytes.saturating_sub(10).max(7) }
    }

    /// Writes the key of that number; numbers over 10^digits would repeat.
    pub(crate) fn write(self, number: u64, out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let hex = |value: u16, at: u32| HEX[usize::from(value >> (4 * at) & 15)];
        out.clear();
        out.push(b'k');
        out.extend((0..4).rev().map(|at| hex(self.run, at)));
        out.push(b'-');
        out.extend((0..3).rev().map(|at| hex(self.worker, at)));
        out.push(b'-');
        let start = out.len();
        out.resize(start + self.digits, b'0');
        let (mut rest, mut at) = (number, out.len());
        while rest > 0 && at > start {
            at -= 1;
            out[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
    }
}

/// Keys of one batch, their memory used again and again.
#[derive(Debug, Default)]
pub(crate) struct KeyBatch {
    keys: Vec<Vec<u8>>,
}

impl KeyBatch {
    /// Fills it with these numbers.
    pub(crate) fn fill(
        &mut self,
        space: KeySpace,
        numbers: impl ExactSizeIterator<Item = u64>,
    ) -> &[Vec<u8>] {
        self.keys.resize_with(numbers.len(), Vec::new);
        for (key, number) in self.keys.iter_mut().zip(numbers) {
            space.write(number, key);
        }
        &self.keys
    }
}

/// A fast generator for drawing keys (xorshift64*); its quality does not matter.
#[derive(Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new() -> Draw {
        Draw(rand::random::<u64>() | 1)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(mixed) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_unique_and_of_one_length() {
        let mut found = HashSet::new();
        let mut key = Vec::new();
        for worker in 0..3 {
            for number in [0, 1, 9, 10, 99, 1_000_000] {
                for bytes in [17, 22, 64] {
                    KeySpace::new(0xab, worker, bytes).write(number, &mut key);
                    assert_eq!(key.len(), bytes);
                    assert!(found.insert(key.clone()), "{}", String::from_utf8_lossy(&key));
                }
            }
        }
        KeySpace::new(0xab, 2, 22).write(123, &mut key);
        assert_eq!(key, b"k00ab-002-000000000123");
        let mut draw = Draw::new();
        assert!((0..1000).all(|_| draw.below(7) < 7));
    }
}
