//! What a blob's file is, before it is executed.

use std::{
    io::{self, Read as _},
    path::Path,
};

/// Bytes of a file that the kernel looks at to find out what it is.
const BEGINNING_BYTES: usize = 256;
const ELF_HEADER_BYTES: usize = 64;
/// 64 bits, lowest byte first: what this service is built for.
const ELF_OWN: [u8; 2] = [2, 1];
/// Bytes of one program header.
const PROGRAM_HEADER_BYTES: u16 = 56;
/// Types of ELF files that can be executed: at a fixed address, or anywhere.
const TYPES: [u16; 2] = [2, 3];
/// The processor's number in ELF headers.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// The C library would hand a file that the kernel does not know to a shell: such a file is refused instead.
pub fn check(file: &Path) -> io::Result<()> {
    let mut beginning = Vec::new();
    std::fs::File::open(file)?.take(BEGINNING_BYTES as u64).read_to_end(&mut beginning)?;
    let refused = |text: &str| Err(io::Error::other(text.to_owned()));
    if beginning.starts_with(b"#!") {
        return match beginning.contains(&b'\n') || beginning.len() < BEGINNING_BYTES {
            true => Ok(()),
            false => refused("the first line of the script is longer than the kernel reads"),
        };
    }
    if !beginning.starts_with(b"\x7fELF") {
        return refused("it is neither an ELF file nor a script that begins with #!");
    }
    match beginning.first_chunk::<ELF_HEADER_BYTES>() {
        Some(header) if is_program(header) => Ok(()),
        Some(_) | None => refused("its ELF header is no program's of this machine"),
    }
}

/// Whether a 64-bit ELF header is of a program for this processor.
fn is_program(header: &[u8; ELF_HEADER_BYTES]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    // Class and byte order, then type, machine, size and number of program headers, where the format has them.
    header[4..6] == ELF_OWN
        && TYPES.contains(&half(16))
        && half(18) == MACHINE
        && half(54) == PROGRAM_HEADER_BYTES
        && half(56) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_one_and_what_only_begins_like_one_is_not() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let judged = |bytes: &[u8]| {
            let file = folder.path().join("file");
            std::fs::write(&file, bytes).unwrap();
            check(&file).map_err(|cause| cause.to_string())
        };
        assert_eq!(judged(&own), Ok(()));
        assert_eq!(judged(b"#!/bin/sh"), Ok(()));
        for (bytes, why) in [
            (b"\x7fELFjunk".to_vec(), "no program's"),
            ([&own[..18], b"\0\0", &own[20..]].concat(), "no program's"),
            ([b"#!/", "a".repeat(300).as_bytes(), b"\n"].concat(), "longer than the kernel reads"),
            (b"echo 1\n".to_vec(), "neither"),
            (Vec::new(), "neither"),
        ] {
            let judged = judged(&bytes).unwrap_err();
            assert!(judged.contains(why), "{judged}");
        }
    }
}
