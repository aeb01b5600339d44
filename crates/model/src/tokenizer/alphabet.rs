//! The byte alphabet of GPT-2: every byte has one printable character, so that a vocabulary of strings can hold
//! tokens that are not text. Both directions are total on their sides: 256 bytes, 256 characters, one to one.

/// The bytes that `text` spells in the byte alphabet, or `None` where a character is not of the alphabet.
pub(super) fn spelled_bytes(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    spell(text, &mut bytes)?;
    Some(bytes)
}

/// Appends the bytes that `text` spells; says nothing, and may have appended some, where a character is not of the alphabet.
pub(super) fn spell(text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    for character in text.chars() {
        bytes.push(byte_of(character)?);
    }
    Some(())
}

/// The byte that a character stands for. Printable Latin-1 characters stand for themselves; the other 68 bytes,
/// in order, have the characters from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7F).ok(),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokenizer_alphabet_names_every_byte_once() {
        let bytes: Vec<u8> = (0x21..=0x143).filter_map(char::from_u32).filter_map(byte_of).collect();
        let mut sorted = bytes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(bytes.len(), 256);
        assert_eq!(sorted.len(), 256);
        assert_eq!(spelled_bytes("ĠaĊ").as_deref(), Some(&b" a\n"[..]));
        assert_eq!(spelled_bytes("a b"), None);
    }
}
