//! How a connection's generation is found, and each of its calls decoded as that generation's: any clients, in any order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mooncake_fuzz::rpc::conversations::Conversations;

fuzz_target!(|input: &[u8]| {
    if let Some((default, steps)) = input.split_first() {
        Conversations::new(*default).run(steps);
    }
});
