//! Host tools by command: `/bin/sh -c COMMAND`, the input on its stdin, the result on its stdout.

use super::{
    child::{ChildSpec, Children, run, variables},
    effect::{Effect, Ending},
    token::Egress,
    until::Until,
};

/// The command of this runner.
pub(super) struct ToolCommand {
    command: String,
}

impl ToolCommand {
    /// Takes the operator's words; the shell reads them.
    pub(super) fn new(command: String) -> Self {
        Self { command }
    }

    /// Executes one effect.
    pub(super) async fn execute(
        &self,
        children: &Children,
        effect: &Effect,
        egress: Option<&Egress>,
        until: Until<'_>,
    ) -> Ending {
        let mut stdin = effect.input.text().as_bytes().to_vec();
        stdin.push(b'\n');
        let spec = ChildSpec {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), self.command.as_str().into()],
            variables: variables(effect, egress),
            stdin,
        };
        match run(children, spec, until).await {
            Ok(mut finished) => finished.ending("the tool command", egress, &until),
            Err(cause) => Ending::executor_error(format_args!("cannot run /bin/sh for --tool-cmd: {cause}")),
        }
    }
}
