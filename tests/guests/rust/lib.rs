//! The guests are the examples beside this: one module each.

#![no_std]
