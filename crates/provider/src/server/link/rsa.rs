//! Encrypts the password with a server's RSA key. The key may come over the wire, and mysql_common
//! panics on a malformed or short one, so it is parsed and measured here.

use mysql_common::crypto::rsa::{GetRandom, Pkcs1OaepPadding, PublicKey};
use num_bigint::BigUint;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject as _;

use crate::binlog::bytes_reader::{Malformed, Reader};

/// Bytes that the padding (OAEP with SHA-1) adds to a text.
const PADDING_BYTES: usize = 42;
/// 16384 bits; a larger key would only cost time.
const MODULUS_BYTES_MAX: usize = 2048;
const EXPONENT_BYTES_MAX: usize = 8;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const WHAT: &str = "RSA public key";

/// Encrypts with a public key in PEM; an error is the reason it can't be done.
pub(crate) fn encrypt(text: &[u8], pem: &[u8]) -> Result<Vec<u8>, String> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem)
        .map_err(|error| format!("no public key in PEM: {error}"))?;
    let key = parse(&der).map_err(|error| format!("no RSA key: {error}"))?;
    if text.len() + PADDING_BYTES > key.num_octets() {
        return Err("the password is too long for it; use TLS or a shorter password".to_owned());
    }
    Ok(key.encrypt_block(text, Pkcs1OaepPadding::new(GetRandom)))
}

/// Parses a key: an algorithm, which is ignored, and a bit string that holds modulus and exponent.
pub(crate) fn parse(der: &[u8]) -> Result<PublicKey, Malformed> {
    let mut info = Reader::new(element(&mut Reader::new(der), SEQUENCE)?);
    element(&mut info, SEQUENCE)?;
    let mut bits = Reader::new(element(&mut info, BIT_STRING)?);
    if bits.u8(WHAT)? != 0 {
        return Err(bits.malformed(WHAT));
    }
    let mut numbers = Reader::new(element(&mut bits, SEQUENCE)?);
    let modulus = integer(&mut numbers, MODULUS_BYTES_MAX)?;
    let exponent = integer(&mut numbers, EXPONENT_BYTES_MAX)?;
    Ok(PublicKey::new(modulus, exponent))
}

fn integer(reader: &mut Reader<'_>, bytes_max: usize) -> Result<BigUint, Malformed> {
    let bytes = element(reader, INTEGER)?;
    // One more byte for a zero that keeps the number positive.
    if bytes.len() > bytes_max + 1 {
        return Err(reader.malformed(WHAT));
    }
    Ok(BigUint::from_bytes_be(bytes))
}

/// Returns the contents of the next DER element, which must have this tag.
fn element<'a>(reader: &mut Reader<'a>, tag: u8) -> Result<&'a [u8], Malformed> {
    if reader.u8(WHAT)? != tag {
        return Err(reader.malformed(WHAT));
    }
    let first = reader.u8(WHAT)?;
    let len = match first {
        0..=0x7f => usize::from(first),
        // That many bytes hold the length, the highest first.
        0x81..=0x83 => reader
            .take(usize::from(first & 0x7f), WHAT)?
            .iter()
            .fold(0, |len, &byte| len << 8 | usize::from(byte)),
        _ => return Err(reader.malformed(WHAT)),
    };
    reader.take(len, WHAT)
}
