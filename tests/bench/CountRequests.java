// Prints, for each line of its input, how many requests of each kind a broker has had: `Produce=12 EndTxn=3 …`.
// Usage: java CountRequests.java PORT, where PORT is the broker's of JMX.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

public class CountRequests {
    public static void main(String[] arguments) throws Exception {
        var address = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi");
        try (JMXConnector connector = JMXConnectorFactory.connect(address)) {
            var broker = connector.getMBeanServerConnection();
            var asked = new BufferedReader(new InputStreamReader(System.in));
            while (asked.readLine() != null) {
                System.out.println(count(broker));
            }
        }
    }

    private static String count(MBeanServerConnection broker) throws Exception {
        var counts = new TreeMap<String, Long>();
        for (ObjectName name : broker.queryNames(new ObjectName("kafka.network:type=RequestMetrics,name=RequestsPerSec,*"), null)) {
            counts.merge(name.getKeyProperty("request"), (Long) broker.getAttribute(name, "Count"), Long::sum);
        }
        // They count what "Fetch" has counted already.
        counts.remove("FetchConsumer");
        counts.remove("FetchFollower");
        return counts.entrySet().stream().map(e -> e.getKey() + "=" + e.getValue()).collect(Collectors.joining(" "));
    }
}
