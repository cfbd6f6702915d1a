//! Reads the blob that its input names, and tells its length and what it holds between 0x20 and 0x7e.

#![no_std]

extern crate alloc;

use alloc::string::String;

use areev_guest::{CallError, Error, blob_get};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Wanted {
    blob: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Told {
    Read { bytes: usize, begins: String },
    Refused { refused: String },
}

/// How much of a blob is told.
const TOLD_MAX: usize = 16;

areev_guest::tool!(read);

fn read(wanted: Wanted) -> Result<Told, Error> {
    match blob_get(&wanted.blob) {
        Ok(bytes) => {
            let shown = bytes.iter().filter(|byte| (0x20..0x7f).contains(*byte)).take(TOLD_MAX);
            Ok(Told::Read { bytes: bytes.len(), begins: shown.map(|byte| char::from(*byte)).collect() })
        }
        Err(CallError::Refused(refused)) => Ok(Told::Refused { refused }),
        Err(other) => Err(other.into()),
    }
}
