import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.api.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * Kafka's assignor of streams groups. A line of standard input is a group in JSON: the number of standbys, the
 * subtopologies, each with the number of its tasks and whether it has state, and the members in the order in which
 * Kafka puts them into its map. The answer is the targets of each member in JSON: active tasks and standbys.
 */
public class StreamsAssignorOracle {
    record Subtopology(int tasks, boolean stateful) {}

    record Topology(TreeMap<String, Subtopology> of) implements TopologyDescriber {
        public List<String> subtopologies() { return new ArrayList<>(of.keySet()); }
        public int maxNumInputPartitions(String name) { return of.get(name).tasks(); }
        public boolean isStateful(String name) { return of.get(name).stateful(); }
    }

    static Map<String, Set<Integer>> tasks(JsonNode told) {
        Map<String, Set<Integer>> found = new HashMap<>();
        told.properties().forEach(one -> {
            Set<Integer> numbers = new HashSet<>();
            one.getValue().forEach(number -> numbers.add(number.asInt()));
            found.put(one.getKey(), numbers);
        });
        return found;
    }

    static Map<String, Map<Integer, Long>> offsets(JsonNode told) {
        Map<String, Map<Integer, Long>> found = new HashMap<>();
        told.properties().forEach(one -> {
            Map<Integer, Long> of = new HashMap<>();
            one.getValue().properties().forEach(each -> of.put(Integer.valueOf(each.getKey()), each.getValue().asLong()));
            found.put(one.getKey(), of);
        });
        return found;
    }

    static Map<String, Set<Integer>> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, Set<Integer>> found = new TreeMap<>();
        tasks.forEach((name, numbers) -> found.put(name, new TreeSet<>(numbers)));
        return found;
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            JsonNode group = json.readTree(lines.nextLine());
            TreeMap<String, Subtopology> subtopologies = new TreeMap<>();
            group.get("subtopologies").properties().forEach(one -> subtopologies.put(
                one.getKey(), new Subtopology(one.getValue().get(0).asInt(), one.getValue().get(1).asBoolean())));
            Map<String, MemberMetadataAndStateImpl> members = new HashMap<>();
            for (JsonNode one : group.get("members")) {
                members.put(one.get("member_id").asText(), new MemberMetadataAndStateImpl(
                    Optional.empty(), Optional.empty(), one.get("process_id").asText(), Map.of(),
                    tasks(one.get("active")), tasks(one.get("standby")), Map.of(), offsets(one.get("offsets")), Map.of()));
            }
            AssignmentConfigsImpl configs = new AssignmentConfigsImpl(group.get("standbys").asInt(), List.of());
            GroupAssignment found = new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), new Topology(subtopologies));
            Map<String, List<Map<String, Set<Integer>>>> targets = new TreeMap<>();
            found.members().forEach((member, given) -> targets.put(
                member, List.of(sorted(given.activeTasks()), sorted(given.standbyTasks()))));
            System.out.println(json.writeValueAsString(targets));
        }
    }
}
