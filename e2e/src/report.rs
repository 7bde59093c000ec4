//! What a scenario says. Several run at a time, each on a thread of its own: it is kept until the scenario is over, and
//! then printed in one piece.

use std::cell::RefCell;

thread_local! {
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Adds a line to what the scenario of this thread has said; see [`crate::say!`].
pub fn line(text: &str) {
    SAID.with_borrow_mut(|said| {
        said.push_str(text);
        said.push('\n');
    });
}

/// Everything that was said on this thread since the last call.
pub fn take() -> String {
    SAID.take()
}

/// `println!` for scenarios.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::report::line(&format!($($argument)*)) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_said_is_taken_once_and_by_its_own_thread() {
        say!("a {}", 1);
        std::thread::scope(|scope| {
            scope.spawn(|| say!("b"));
        });
        say!("c");
        assert_eq!(super::take(), "a 1\nc\n");
        assert_eq!(super::take(), "");
    }
}
