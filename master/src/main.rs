//! `mooncake-master`: the program.

fn main() {}
