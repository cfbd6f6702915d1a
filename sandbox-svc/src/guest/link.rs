//! The host functions: `areev::emit`, and `areev::fetch` and `areev::blob_get` for the runtime that has them.

use std::{future::Future, ops::Range};

use tokio::sync::oneshot;
use wasmtime::{AsContext as _, Caller, Extern, Linker, Memory, Trap};

use super::{BYTES_PER_FUEL, Call, CallKind, Host, Outside, Phase};
use crate::{
    fetch,
    imports::{BLOB_GET, EMIT, FETCH, MODULE},
    outcome::{Failure, FailureKind},
};

/// What `areev::fetch` answers when there is no reply to point at.
const NO_REPLY: i32 = -1;
/// The reply's length comes before its bytes, little-endian.
const LENGTH_BYTES: usize = 4;

/// Links `areev::emit`.
pub fn emit(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, EMIT, emitted).map(|_| ())
}

/// Links `areev::fetch`.
pub fn fetch(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap_async(MODULE, FETCH, fetched_boxed).map(|_| ())
}

/// Links `areev::blob_get`.
pub fn blob_get(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap_async(MODULE, BLOB_GET, blob_got_boxed).map(|_| ())
}

/// A host function's future, borrowed from its caller.
type Answer<'a> = Box<dyn Future<Output = wasmtime::Result<i32>> + Send + 'a>;

fn fetched_boxed(caller: Caller<'_, Host>, (pointer, len): (i32, i32)) -> Answer<'_> {
    Box::new(called(caller, CallKind::Fetch, pointer, len))
}

fn blob_got_boxed(caller: Caller<'_, Host>, (pointer, len): (i32, i32)) -> Answer<'_> {
    Box::new(called(caller, CallKind::BlobGet, pointer, len))
}

/// The last call wins; a range outside memory is ignored, and told when there was no other; too long a range fails the run.
fn emitted(mut caller: Caller<'_, Host>, pointer: i32, len: i32) -> wasmtime::Result<()> {
    let (len, max) = (len as u32 as usize, caller.data().payload_bytes_max);
    if len > max {
        let text = format!("guest emitted {len} bytes, over the {max} that an output may have");
        return Err(wasmtime::Error::new(Failure::new(FailureKind::OutputTooLarge, text)));
    }
    let Some(memory) = memory_of(&mut caller) else { return Ok(()) };
    let Some(range) = range_in(&memory, &caller, pointer, len) else {
        caller.data_mut().outside = Some(Outside { pointer: pointer as u32, len });
        return Ok(());
    };
    charge(&mut caller, len)?;
    let (data, host) = memory.data_and_store_mut(&mut caller);
    let kept = host.emitted.get_or_insert_default();
    kept.clear();
    kept.extend_from_slice(&data[range]);
    Ok(())
}

async fn called(mut caller: Caller<'_, Host>, kind: CallKind, pointer: i32, len: i32) -> wasmtime::Result<i32> {
    match caller.data().phase {
        Phase::Running => {}
        Phase::Allocating => return Ok(NO_REPLY),
        Phase::Starting => {
            let text = format!("a start function may not call areev::{}; call it from run", name(kind));
            return Err(wasmtime::Error::new(Failure::new(FailureKind::Abi, text)));
        }
    }
    let Some(memory) = memory_of(&mut caller) else { return Ok(NO_REPLY) };
    let len = len as u32 as usize;
    let Some(range) = range_in(&memory, &caller, pointer, len) else { return Ok(NO_REPLY) };
    let max = caller.data().payload_bytes_max;
    if len > max {
        let error = format!("the {} request has {len} bytes, over the {max} that it may have", name(kind));
        return hand_back(&mut caller, &memory, &fetch::refused(&error, None)).await;
    }
    charge(&mut caller, len)?;
    let request = memory.data(&caller)[range].to_vec();
    let reply = ask(&caller, kind, request).await?;
    hand_back(&mut caller, &memory, &reply).await
}

/// Waits outside the guest for the answer, until the deadline.
async fn ask(caller: &Caller<'_, Host>, kind: CallKind, request: Vec<u8>) -> wasmtime::Result<Vec<u8>> {
    let host = caller.data();
    let (reply, answer) = oneshot::channel();
    let gone = || wasmtime::Error::msg("nobody answers brokered calls");
    let exchanged = async {
        host.calls.send(Call { kind, request, reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?.map_err(wasmtime::Error::new)
    };
    match tokio::time::timeout_at(host.ends_at.into(), exchanged).await {
        Ok(answered) => answered,
        Err(_) => {
            let after = host.ends_at.saturating_duration_since(host.started);
            Err(wasmtime::Error::new(Failure::timeout(waiting(kind), after)))
        }
    }
}

const fn name(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Fetch => FETCH,
        CallKind::BlobGet => BLOB_GET,
    }
}

const fn waiting(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Fetch => "guest, waiting for areev::fetch,",
        CallKind::BlobGet => "guest, waiting for areev::blob_get,",
    }
}

/// Asks the guest for room and writes `[length][bytes]` there.
async fn hand_back(caller: &mut Caller<'_, Host>, memory: &Memory, reply: &[u8]) -> wasmtime::Result<i32> {
    charge(caller, reply.len())?;
    let size = reply.len() + LENGTH_BYTES;
    let (Ok(length), Ok(asked)) = (u32::try_from(reply.len()), i32::try_from(size)) else { return Ok(NO_REPLY) };
    let Some(alloc) = caller.data().alloc.clone() else { return Ok(NO_REPLY) };
    caller.data_mut().phase = Phase::Allocating;
    let answered = alloc.call_async(&mut *caller, asked).await;
    caller.data_mut().phase = Phase::Running;
    let pointer = match answered {
        Ok(pointer) if pointer > 0 => pointer,
        Ok(_) => return Ok(NO_REPLY),
        Err(error) if ends_the_run(&error) => return Err(error),
        Err(_) => return Ok(NO_REPLY),
    };
    let Some(range) = range_in(memory, caller, pointer, size) else { return Ok(NO_REPLY) };
    let place = &mut memory.data_mut(caller)[range];
    place[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    place[LENGTH_BYTES..].copy_from_slice(reply);
    Ok(pointer)
}

/// A trap in `alloc` is the guest's to handle; spent fuel, a passed deadline and the host's own verdicts are not.
fn ends_the_run(error: &wasmtime::Error) -> bool {
    let bounded = matches!(error.downcast_ref::<Trap>(), Some(Trap::OutOfFuel | Trap::Interrupt));
    bounded || error.downcast_ref::<Failure>().is_some() || error.downcast_ref::<Trap>().is_none()
}

/// Moving bytes costs fuel, so that fuel bounds it.
fn charge(caller: &mut Caller<'_, Host>, bytes: usize) -> wasmtime::Result<()> {
    let cost = (bytes as u64).div_ceil(BYTES_PER_FUEL);
    let left = caller.get_fuel()?;
    caller.set_fuel(left.saturating_sub(cost))?;
    if left <= cost { Err(Trap::OutOfFuel.into()) } else { Ok(()) }
}

/// The guest's memory; a start function calls before the exports are bound.
fn memory_of(caller: &mut Caller<'_, Host>) -> Option<Memory> {
    if caller.data().memory.is_none() {
        let export = caller.get_export("memory");
        caller.data_mut().memory = export.and_then(Extern::into_memory);
    }
    caller.data().memory
}

/// Both numbers are the guest's: nothing is read, written or reserved before they are known to lie in its memory.
fn range_in(memory: &Memory, caller: &Caller<'_, Host>, pointer: i32, len: usize) -> Option<Range<usize>> {
    let start = pointer as u32 as usize;
    let end = start.checked_add(len)?;
    (end <= memory.data_size(caller.as_context())).then_some(start..end)
}
