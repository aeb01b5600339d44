//! Numbers in as few bytes as they need: seven bits a byte, the lowest first, the eighth says that more follow.
//!
//! Reading never trusts what it reads: a number that ends early or does not fit is `None`.

/// Appends `number`.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends `text` after its length.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// Takes a number from the front.
pub(crate) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Takes a number of 32 bits from the front.
pub(crate) fn take_u32(from: &mut &[u8]) -> Option<u32> {
    take(from)?.try_into().ok()
}

/// Takes a text from the front.
pub(crate) fn take_text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let len = usize::try_from(take(from)?).ok()?;
    let (text, rest) = from.split_at_checked(len)?;
    *from = rest;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_put_is_taken(numbers: Vec<u64>, text: String) {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|&number| put(&mut bytes, number));
            put_text(&mut bytes, &text);
            let mut rest = &*bytes;
            for &number in &numbers {
                prop_assert_eq!(take(&mut rest), Some(number));
            }
            prop_assert_eq!(take_text(&mut rest), Some(&*text));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            let mut rest = &*bytes;
            while take(&mut rest).is_some() {}
            take_text(&mut &*bytes);
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_nothing() {
        assert_eq!(take(&mut &[0xff; 9][..]), None);
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]), None);
        assert_eq!(take_u32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
        assert_eq!(take_text(&mut &[3, b'a', b'b'][..]), None);
    }
}
