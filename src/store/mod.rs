//! SQLite: connection and migrations, one file per table family. No other module sees SQL.
