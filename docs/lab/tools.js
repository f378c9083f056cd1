export function setUpTools() {}
