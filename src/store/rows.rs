//! Reading typed values out of rows.

use rusqlite::Row;
use rusqlite::types::Type;

use crate::base::EpochMillis;
use crate::base::ids::InvalidId;

/// An identifier column.
pub fn id<T>(
    row: &Row<'_>,
    column: &str,
    parse: fn(String) -> Result<T, InvalidId>,
) -> rusqlite::Result<T> {
    parse(row.get(column)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

/// A nullable time column.
pub fn millis(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<EpochMillis>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(EpochMillis))
}

/// A JSON column.
pub fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))
}

/// An unsigned column; a negative value is damage.
pub fn unsigned(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, value))
}

/// A number as SQLite can hold it.
pub fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
