//! Inputs and outputs of a compiled graph, and which memory fits them.

use crate::error::{Error, Side};
use std::fmt;

/// The inputs and outputs of a graph, in the order in which tensors are lent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// What goes in.
    pub inputs: Vec<Port>,
    /// What comes out.
    pub outputs: Vec<Port>,
}

/// An input or output: single-precision floats, the last dimension densest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name in the graph; a port need not have one.
    pub name: Option<String>,
    /// Its shape.
    pub shape: Vec<Dimension>,
}

/// A dimension of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// As it was compiled.
    Fixed(usize),
    /// Given by the tensors of each inference.
    Any,
}

impl Ports {
    /// Which input is called `name`.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<usize> {
        position(&self.inputs, name)
    }

    /// Which output is called `name`.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<usize> {
        position(&self.outputs, name)
    }

    /// The ports of one side.
    #[must_use]
    pub fn of(&self, side: Side) -> &[Port] {
        match side {
            Side::Input => &self.inputs,
            Side::Output => &self.outputs,
        }
    }
}

impl Port {
    /// Whether its shape depends on the inference.
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.shape.contains(&Dimension::Any)
    }

    /// How many values `rows` rows have: the product of its dimensions, where those that vary are `rows`. Absent if
    /// that is more than a number can hold.
    #[must_use]
    pub fn values(&self, rows: usize) -> Option<usize> {
        self.shape.iter().try_fold(1_usize, |product, dimension| match dimension {
            Dimension::Fixed(size) => product.checked_mul(*size),
            Dimension::Any => product.checked_mul(rows),
        })
    }

    /// How `len` values lie in it: they fill it, and its dimension that varies, if it has one, follows from their
    /// number. With two that vary nothing would follow, so that no values fit.
    fn fit(&self, len: usize) -> Option<Fit> {
        let fixed = self.values(1)?;
        let varying = self.shape.iter().filter(|&&dimension| dimension == Dimension::Any).count();
        let rows = match varying {
            0 if len == fixed => None,
            1 if fixed > 0 && len.is_multiple_of(fixed) => Some(len / fixed),
            _ => return None,
        };
        let size = |dimension: &Dimension| match dimension {
            Dimension::Fixed(size) => i64::try_from(*size).ok(),
            Dimension::Any => i64::try_from(rows?).ok(),
        };
        Some(Fit { shape: self.shape.iter().map(size).collect::<Option<_>>()?, rows })
    }
}

/// How values lie in a port.
#[derive(Debug, PartialEq, Eq)]
struct Fit {
    shape: Vec<i64>,
    /// The size of the dimension that varies.
    rows: Option<usize>,
}

/// The rows of one inference: the same in all its ports whose rows vary.
///
/// Were an output given fewer rows than come out, OpenVINO's CPU would leave it unwritten and say that all is well.
#[derive(Debug, Default)]
pub struct LentRows {
    /// Those of the first port whose rows vary.
    rows: Option<usize>,
}

impl LentRows {
    /// The shape of `given` values for `port`, which is port `index` of its side.
    ///
    /// # Errors
    /// [`Error::Length`] if they do not fill it, [`Error::Rows`] if they are more or fewer rows than before.
    pub fn fit(&mut self, port: &Port, side: Side, index: usize, given: usize) -> Result<Vec<i64>, Error> {
        let fit = port.fit(given).ok_or_else(|| Error::Length { side, index, shape: port.to_string(), given })?;
        match (self.rows, fit.rows) {
            (Some(before), Some(rows)) if before != rows => Err(Error::Rows { side, index, rows, before }),
            (before, rows) => {
                self.rows = before.or(rows);
                Ok(fit.shape)
            }
        }
    }
}

fn position(ports: &[Port], name: &str) -> Option<usize> {
    ports.iter().position(|port| port.name.as_deref() == Some(name))
}

/// `[256, 576]`, or `[?, 576]`.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.shape.iter().map(|dimension| match dimension {
            Dimension::Fixed(size) => size.to_string(),
            Dimension::Any => "?".to_owned(),
        });
        write!(f, "[{}]", sizes.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dimension::{Any, Fixed};
    use proptest::prelude::*;

    fn port(shape: &[Dimension]) -> Port {
        Port { name: Some("x".to_owned()), shape: shape.to_vec() }
    }

    #[test]
    fn rows_follow_from_the_number_of_values() {
        let shape = |port: &Port, len| port.fit(len).map(|fit| fit.shape);
        let dynamic = port(&[Any, Fixed(8)]);
        assert_eq!(shape(&dynamic, 24), Some(vec![3, 8]));
        assert_eq!(shape(&dynamic, 0), Some(vec![0, 8]));
        assert_eq!(shape(&dynamic, 25), None);
        assert_eq!(shape(&port(&[Fixed(3), Fixed(8)]), 16), None);
        assert_eq!(shape(&port(&[]), 1), Some(vec![]));
        assert_eq!(shape(&port(&[Any, Any]), 4), None);
        assert_eq!(shape(&port(&[Any, Fixed(0)]), 0), None);
        assert_eq!(shape(&port(&[Fixed(usize::MAX), Fixed(3)]), 8), None);
        assert_eq!(dynamic.to_string(), "[?, 8]");
    }

    #[test]
    fn all_ports_have_the_same_rows_where_they_vary() {
        let (narrow, wide, fixed) = (port(&[Any, Fixed(2)]), port(&[Any, Fixed(8)]), port(&[Fixed(7)]));
        let mut rows = LentRows::default();
        assert_eq!(rows.fit(&fixed, Side::Input, 0, 7).unwrap(), [7]);
        assert_eq!(rows.fit(&narrow, Side::Input, 1, 6).unwrap(), [3, 2]);
        assert_eq!(rows.fit(&fixed, Side::Input, 2, 7).unwrap(), [7]);
        let error = rows.fit(&wide, Side::Output, 0, 32).unwrap_err();
        assert_eq!(error.to_string(), "output 0 has 4 rows, where what was given before has 3");
        assert_eq!(rows.fit(&wide, Side::Output, 0, 24).unwrap(), [3, 8]);
    }

    #[test]
    fn ports_are_found_by_name() {
        let unnamed = Port { name: None, ..port(&[]) };
        let ports = Ports { inputs: vec![unnamed, port(&[])], outputs: vec![] };
        assert_eq!((ports.input("x"), ports.input("y"), ports.output("x")), (Some(1), None, None));
    }

    proptest! {
        /// Memory is lent in exactly the shape that it has: never a value more, or fewer.
        #[test]
        fn a_shape_has_as_many_values_as_were_given(
            sizes in prop::collection::vec(1_usize..20, 0..4),
            varying in prop::option::of(0_usize..4),
            len in 0_usize..5000,
        ) {
            let mut shape: Vec<_> = sizes.into_iter().map(Fixed).collect();
            if let Some(dimension) = varying.and_then(|index| shape.get_mut(index)) {
                *dimension = Any;
            }
            if let Some(fit) = port(&shape).fit(len) {
                prop_assert_eq!(fit.shape.iter().product::<i64>(), i64::try_from(len).unwrap());
            } else {
                let fixed = port(&shape).values(1).unwrap();
                prop_assert!(len != fixed || port(&shape).is_dynamic() && len % fixed != 0);
            }
        }
    }
}
