//! SHA-256 as text: the one place that spells hashes.

/// Lower-case hexadecimal SHA-256.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes.as_ref());
    data_encoding::HEXLOWER.encode(digest.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_specification() {
        assert_eq!(
            sha256_hex("tok-1"),
            "65dcf16ea3dfa49069628089eb4a75483070f5584b2a21ee64912b5f621f12da"
        );
        assert_eq!(
            sha256_hex("x".repeat(200)),
            "aa20c23e3201834050679e1d88941b9a6fed0557c9a705cb2c315e2e63fd486d"
        );
    }
}
