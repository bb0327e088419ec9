//! Segmented, durable spool of received transactions.
