//! In linear memory: what crosses the border are addresses. The one place of the project with `unsafe`.

#![expect(unsafe_code, reason = "the guest ABI is exported names and addresses; each use says why it is good")]

use alloc::{boxed::Box, vec, vec::Vec};
use core::ptr;

#[cfg(feature = "runtime")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Bytes of the length that stands before a reply.
const LENGTH_BYTES: usize = 4;

mod host {
    //! What the host links.

    #[link(wasm_import_module = "areev")]
    unsafe extern "C" {
        pub safe fn emit(pointer: *const u8, length: usize);
        pub safe fn fetch(pointer: *const u8, length: usize) -> isize;
        pub safe fn blob_get(pointer: *const u8, length: usize) -> isize;
    }
}

/// A tool that breaks its own promises ends as a trap.
#[cfg(feature = "runtime")]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// Room for the input or a reply, given up by [`taken`].
// SAFETY: the name is the guest ABI's, and nothing else defines it.
#[unsafe(no_mangle)]
extern "C" fn alloc(length: usize) -> *mut u8 {
    Box::into_raw(vec![0_u8; length].into_boxed_slice()).cast()
}

/// Takes the input, runs the tool, hands its result to the host.
pub fn run(pointer: *mut u8, length: usize, tool: impl FnOnce(&[u8]) -> Vec<u8>) {
    let input = taken(pointer, length);
    let output = tool(&input);
    host::emit(output.as_ptr(), output.len());
}

/// One brokered call. None: the host has no reply to give.
pub fn fetch(request: &[u8]) -> Option<Vec<u8>> {
    reply(host::fetch(request.as_ptr(), request.len()))
}

/// One blob. None: the host has no reply to give.
pub fn blob_get(request: &[u8]) -> Option<Vec<u8>> {
    reply(host::blob_get(request.as_ptr(), request.len()))
}

fn reply(answered: isize) -> Option<Vec<u8>> {
    let pointer = usize::try_from(answered).ok().filter(|address| *address > 0)? as *mut u8;
    let mut length = [0_u8; LENGTH_BYTES];
    // SAFETY: a positive answer is the address of a length and of so many bytes, in room that `alloc` gave.
    unsafe { ptr::copy_nonoverlapping(pointer, length.as_mut_ptr(), LENGTH_BYTES) };
    let mut bytes = taken(pointer, LENGTH_BYTES + u32::from_le_bytes(length) as usize).into_vec();
    bytes.drain(..LENGTH_BYTES);
    Some(bytes)
}

/// What `alloc` gave up, filled by the host.
fn taken(pointer: *mut u8, length: usize) -> Box<[u8]> {
    // SAFETY: the host hands back each address once, with the length that it asked `alloc` for; all bytes were set.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(pointer, length)) }
}
