//! Remote identity: enrolment, the outbound link, capabilities.
