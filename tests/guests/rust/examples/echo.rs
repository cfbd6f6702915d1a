//! Gives its input back.

#![no_std]

use areev_guest::{Error, Json};

areev_guest::tool!(echo);

fn echo(input: Json) -> Result<Json, Error> {
    Ok(input)
}
