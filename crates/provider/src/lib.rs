//! Change-stream vocabulary (GTIDs, events, transactions) and the connection to the source.
