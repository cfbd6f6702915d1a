//! The harness: real processes of the three services, what surrounds them, and what tests and the demo ask of them.

// From the outside in: programs, processes, services, a stack of them, and the client's view.
pub mod binaries;
pub mod certificates;
pub mod channel;
pub mod client;
pub mod flags;
pub mod process;
pub mod service;
pub mod stack;
// What a stack is fed with.
pub mod document;
pub mod foreign_grain;
pub mod guests;
// What surrounds it.
pub mod host_tool;
pub mod shell_tool;
pub mod small_disk;
pub mod upstream;
// How it is looked at.
pub mod canary;
pub mod evidence;
pub mod journal;
pub mod metrics_text;
pub mod refusal;
pub mod search;
pub mod sizes;
pub mod stored;
pub mod tree;
// What a newcomer sees of it all.
pub mod demo;
pub mod tour;
