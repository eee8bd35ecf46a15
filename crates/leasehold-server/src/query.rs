//! The query string: known parameters, once each.

use crate::percent;
use crate::problem::ApiError;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Query<'a> {
    /// Reads a query string that has no parameters but these. Only what [`Query::decoded`] reads has escapes.
    pub(crate) fn parse(query: Option<&'a str>, known: &[&str]) -> Result<Self, ApiError> {
        let mut parameters: Vec<(&str, &str)> = Vec::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&name) {
                return Err(ApiError::bad_request("an unknown query parameter"));
            }
            if parameters.iter().any(|(other, _)| *other == name) {
                return Err(ApiError::bad_request("a query parameter is there twice"));
            }
            parameters.push((name, value));
        }
        Ok(Self(parameters))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// A text that may have escapes.
    pub(crate) fn decoded(&self, name: &str) -> Result<Option<String>, ApiError> {
        let decode =
            |text| percent::decode(text).ok_or_else(|| ApiError::invalid(format!("{name} has a bad escape")));
        self.text(name).map(decode).transpose()
    }

    /// A whole number in a range.
    pub(crate) fn number(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(ApiError::invalid(format!("{name} is between {min} and {max}"))),
        }
    }

    /// `true`, `false`, or absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, ApiError> {
        match self.text(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::invalid(format!("{name} is `true` or `false`"))),
        }
    }
}
