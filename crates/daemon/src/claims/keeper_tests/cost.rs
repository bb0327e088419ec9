//! Requests of a fleet at rest.

use super::*;

/// Writes, lists of all objects, and all requests in this time.
async fn requests_of(site: &Site<ApiServer>, time: Duration) -> (usize, usize, usize) {
    let before = site.service.requests().len();
    sleep(time).await;
    let requests = site.service.requests().split_off(before);
    let count = |is_it: &dyn Fn(&String) -> bool| requests.iter().filter(|one| is_it(one)).count();
    let is_write = |request: &String| !request.starts_with("GET") && request.contains("-claim-");
    let is_list = |request: &String| request.contains("limit=") && !request.contains("member");
    (count(&is_write), count(&is_list), requests.len())
}

#[tokio::test(start_paused = true)]
async fn leases_at_rest_cost_the_same_for_any_number_of_channels() {
    const TIMES: u32 = 20;
    let mut costs = Vec::new();
    for channels in [9, 300] {
        let site = Site::<ApiServer>::new(3, channels).await;
        sleep(DELAY * 2).await;
        let (writes, lists, all) = requests_of(&site, TTL * TIMES).await;
        assert_eq!((writes, lists), (0, 0), "the watch tells everything");
        costs.push(all);
    }
    // Three renewals, a look and a watch of each daemon in each time to live, and a little more.
    let most = 3 * 6 * TIMES as usize;
    assert!(costs.iter().all(|cost| *cost <= most), "{costs:?}, at most {most}");
}
