//! The gates that the host decides: pins, stored code, executors.

use content_digest::Digest;

use super::HostProfile;
use crate::{
    pinned::{Executor, PinnedNode, Runtime},
    refusal::{Refusal, RefusalCode},
    text::shown,
};

/// The digest of the code that the node would execute.
pub(super) fn code_of(node: &PinnedNode) -> Option<Digest> {
    match &node.tool.executor {
        Executor::Code { digest, .. } => Some(*digest),
        Executor::HostTool | Executor::Person | Executor::ChildRun | Executor::Model { .. } => None,
    }
}

/// Code executes only when the operator pinned its digest. A plan, a definition or a bundle cannot.
pub(super) fn pin(node: &PinnedNode, host: &HostProfile<'_>) -> Option<Refusal> {
    let digest = code_of(node).filter(|digest| !host.pins.contains(digest))?;
    let what = format!(
        "would execute the code {}, which this host has not pinned: review it, then start the runner with \
         --allow-executor {digest}",
        digest.to_uri()
    );
    Some(refuse(node, &what).with("executor", digest.to_uri()))
}

pub(super) fn absent_code(node: &PinnedNode, digest: &Digest) -> Refusal {
    let uri = digest.to_uri();
    let what = format!("would execute the code {uri}, which is not in the catalogue: store it with PutBlob");
    refuse(node, &what).with("executor", uri)
}

/// Whether anything here can execute the node.
pub(super) fn executor(node: &PinnedNode, host: &HostProfile<'_>) -> Option<Refusal> {
    match &node.tool.executor {
        Executor::Person | Executor::ChildRun | Executor::Model { .. } => None,
        Executor::HostTool if host.host_tool => None,
        Executor::HostTool => Some(refuse(
            node,
            "names no executor_uri, so it runs as a host tool, and this runner has none: start it with --tool-cmd 'COMMAND' \
             or --tool-url URL",
        )),
        Executor::Code { runtime: Runtime::Native, .. } if host.sandbox_url => None,
        Executor::Code { runtime: Runtime::Native, .. } => Some(refuse(
            node,
            "has native code, which only a sandbox service may execute: start the runner with --sandbox-url URL (and the \
             sandbox with --allow-native)",
        )),
        Executor::Code { .. } if host.sandbox_url || host.sandbox_cmd => None,
        Executor::Code { runtime, .. } => {
            let what = format!(
                "has the runtime `{}`, and this runner has no sandbox: start it with --sandbox-url URL or \
                 --sandbox-cmd 'COMMAND'",
                runtime.as_str()
            );
            Some(refuse(node, &what).with("runtime", runtime.as_str()))
        }
    }
}

fn refuse(node: &PinnedNode, what: &str) -> Refusal {
    let text = format!("tool {} of node {} {what}", shown(&node.tool.tool_name), shown(&node.node));
    Refusal::new(RefusalCode::ExecutorRefused, text).with("tool", &node.tool.tool_name).at(&node.node)
}
