//! The node under attack, from where its ports can be reached and from beside its processes: its pods come to run all the
//! same.

mod all_at_once;
mod device_plugins;
mod disk;
mod dra_drivers;
mod host;
mod kills;
mod left_tasks;
mod limits;
mod odd_images;
mod pods;
mod serving;
