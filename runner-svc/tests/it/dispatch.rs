//! Sending effects out: real commands, and services that are played by the tests.

mod broker;
mod fake_broker;
mod fake_sandbox;
pub mod fake_tool;
mod rig;
mod sandbox;
mod sandbox_command;
mod sandbox_names;
mod sandbox_trouble;
mod tool_command;
mod tool_service;
