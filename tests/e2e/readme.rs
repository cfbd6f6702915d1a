//! The README says what is so: its lines are run, its tables are compared.
