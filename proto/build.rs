//! Compiles the `.proto` files with a compiler written in Rust: no `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const ROOT: &str = "areev";

const FILES: [&str; 6] = [
    "areev/error/v1/reason.proto",
    "areev/runner/v1/catalog.proto",
    "areev/runner/v1/runner.proto",
    "areev/sandbox/v1/sandbox.proto",
    "areev/broker/v1/broker.proto",
    "areev/tool/v1/tool.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true).open_files(FILES)?;

    // Reflection serves the comments too, so that `grpcurl describe` shows them.
    let described = compiler.encode_file_descriptor_set();
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("descriptors.bin"), &described)?;

    let files = prost_types::FileDescriptorSet::decode(described.as_slice())?;
    // Large bodies are handed on as they came, not copied.
    tonic_prost_build::configure()
        .bytes(".areev.sandbox.v1.Exchange.reply_json")
        .bytes(".areev.broker.v1.FetchArtifactRequest.chunk")
        .bytes(".areev.broker.v1.FetchArtifactResponse.chunk")
        .compile_fds(files)?;
    Ok(())
}
