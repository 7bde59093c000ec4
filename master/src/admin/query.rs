//! Query strings, as clients of the C++ master write them.

/// The value of a parameter as it is written, like upstream.
pub(super) fn raw<'q>(query: Option<&'q str>, name: &str) -> Option<&'q str> {
    let mut pairs =
        query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// `%41` as `A`; what is no escape stays as it is.
pub(super) fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = hex.and_then(|hex| Some(digit(hex[0])? << 4 | digit(hex[1])?));
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    out
}

fn digit(hex: u8) -> Option<u8> {
    char::from(hex).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_as_they_are_written() {
        assert_eq!(raw(Some("a=1&key=a%20b&key=c"), "key"), Some("a%20b"));
        assert_eq!(
            (raw(Some("key"), "key"), raw(Some("keys=1"), "key"), raw(None, "key")),
            (Some(""), None, None)
        );
        for (text, bytes) in [
            ("a%20b", &b"a b"[..]),
            ("%ff%FF", b"\xff\xff"),
            ("100%", b"100%"),
            ("%4", b"%4"),
            ("%zz%41", b"%zzA"),
            ("+", b"+"),
            ("%\u{e4}1", "%\u{e4}1".as_bytes()),
        ] {
            assert_eq!(percent_decoded(text), bytes, "{text}");
        }
    }
}
