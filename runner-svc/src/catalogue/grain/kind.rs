//! The types of grains, each with its byte in the header and its name in the payload.

/// What a grain is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum GrainType {
    /// A subject, a relation, an object.
    Fact = 0x01,
    /// Something that happened.
    Event = 0x02,
    /// A snapshot of somebody's state.
    State = 0x03,
    /// A plan.
    Workflow = 0x04,
    /// A definition of a tool, or an execution of one.
    Tool = 0x05,
    /// What an observer saw.
    Observation = 0x06,
    /// What somebody wants.
    Goal = 0x07,
    /// A conclusion and its premises.
    Reasoning = 0x08,
    /// What several observers agreed on.
    Consensus = 0x09,
    /// A permission that somebody gave.
    Consent = 0x0A,
    /// What somebody can do.
    Skill = 0x0B,
    /// What an engine advises; never authored.
    Recommendation = 0x0C,
    /// What starts a workflow.
    Trigger = 0x0D,
}

impl GrainType {
    /// All of them, by their bytes.
    pub const ALL: [Self; 13] = [
        Self::Fact,
        Self::Event,
        Self::State,
        Self::Workflow,
        Self::Tool,
        Self::Observation,
        Self::Goal,
        Self::Reasoning,
        Self::Consensus,
        Self::Consent,
        Self::Skill,
        Self::Recommendation,
        Self::Trigger,
    ];

    /// The header's type byte.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// The type of a header's byte.
    pub fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte)
    }

    /// The type of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The payload's type name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fact => "fact",
            Self::Event => "event",
            Self::State => "state",
            Self::Workflow => "workflow",
            Self::Tool => "tool",
            Self::Observation => "observation",
            Self::Goal => "goal",
            Self::Reasoning => "reasoning",
            Self::Consensus => "consensus",
            Self::Consent => "consent",
            Self::Skill => "skill",
            Self::Recommendation => "recommendation",
            Self::Trigger => "trigger",
        }
    }
}
