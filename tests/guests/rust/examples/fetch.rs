//! Makes the call that its input describes, and gives the answer or why there is none.

#![no_std]

extern crate alloc;

use alloc::string::String;

use areev_guest::{CallError, Error, Request};
use serde::Serialize;

#[derive(Serialize)]
#[serde(untagged)]
enum Reply {
    Answered { status: u16, body: String },
    Refused { error: String, code: &'static str },
    Failed { error: String },
}

areev_guest::tool!(fetch);

fn fetch(request: Request) -> Result<Reply, Error> {
    match request.send() {
        Ok(answer) => Ok(Reply::Answered { status: answer.status, body: answer.text()?.into() }),
        Err(CallError::Refused(error)) => Ok(Reply::Refused { error, code: "RUN-E022" }),
        Err(CallError::Failed(error)) => Ok(Reply::Failed { error }),
        Err(other) => Err(other.into()),
    }
}
