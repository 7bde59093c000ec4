//! Prints the CRD.
fn main() {}
