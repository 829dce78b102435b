//! Time as a value that is passed in, so that state machines and tests own it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A wall-clock instant: whole milliseconds since the Unix epoch, UTC.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct EpochMillis(pub i64);

impl EpochMillis {
    /// Now, from the operating system's wall clock.
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// `self + ms`, saturating at the ends of the range.
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; negative when the clock went back.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// RFC 3339 in UTC with milliseconds, such as `2026-11-30T22:23:07.004Z`.
    pub fn rfc3339(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => format!("{timestamp:.3}"),
            Err(_) => self.0.to_string(),
        }
    }
}

/// An instant that travels as RFC 3339 text in UTC, in the families whose sources write it so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub EpochMillis);

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.rfc3339())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(EpochMillis(at.as_millisecond())))
    }
}

impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

/// Where a component takes the time from.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn now(&self) -> EpochMillis;
}

/// The operating system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> EpochMillis {
        EpochMillis::now()
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct TestClock(AtomicI64);

impl TestClock {
    /// A clock that shows `start`.
    pub fn at(start: EpochMillis) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> EpochMillis {
        EpochMillis(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_is_utc_with_milliseconds() {
        assert_eq!(EpochMillis(0).rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(EpochMillis(1_234).rfc3339(), "1970-01-01T00:00:01.234Z");
        assert_eq!(EpochMillis(i64::MAX).rfc3339(), i64::MAX.to_string());
    }
}
